"""PTX of any compiler: loaded as modules, whose kernels are launched with arguments checked by their declarations."""
