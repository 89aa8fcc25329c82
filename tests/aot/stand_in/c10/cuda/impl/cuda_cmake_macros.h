// A torch with CUDA has this header; one without lacks it.
#pragma once
