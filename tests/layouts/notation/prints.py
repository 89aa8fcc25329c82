"""MMAs and copies as C++ CuTe (CUTLASS 4.2, compiled with g++) and the CuTe DSL (4.8.1) printed them."""

CPP_SS = """TiledMMA
  ThrLayoutVMNK:  (_128,_2,_1,_1):(_1,_128,_0,_0)
  PermutationMNK: (_,_,_)
MMA_Atom
  ThrID:      _128:_1
  Shape_MNK:  (_64,_64,_16)
  LayoutA_TV: (_128,(_64,_16)):(_0,(_1,_64))
  LayoutB_TV: (_128,(_64,_16)):(_0,(_1,_64))
  LayoutC_TV: ((_4,_8,_4),(_2,_2,_8)):((_128,_1,_16),(_64,_8,_512))
"""
DSL_SS = """Tiled MMA
  Thr Layout VMNK: (128,2,1,1):(1,128,0,0)
  Permutation MNK: (_,_,_)
MMA Atom
  ThrID:           128:1
  Shape MNK:       (64,64,16)
  TV Layout A:     (128,(64,16)):(0,(1,64))
  TV Layout B:     (128,(64,16)):(0,(1,64))
  TV Layout C:     ((4,8,4),(2,2,8)):((128,1,16),(64,8,512))
"""
CPP_RS = """MMA_Atom
  ThrID:      _128:_1
  Shape_MNK:  (_64,_64,_16)
  LayoutA_TV: ((_4,_8,_4),(_2,_2,_2)):((_128,_1,_16),(_64,_8,_512))
  LayoutB_TV: (_128,(_64,_16)):(_0,(_1,_64))
  LayoutC_TV: ((_4,_8,_4),(_2,_2,_8)):((_128,_1,_16),(_64,_8,_512))
"""
DSL_RS = """MMA Atom
  ThrID:       128:1
  Shape MNK:   (64,64,16)
  TV Layout A: ((4,8,4),(2,2,2)):((128,1,16),(64,8,512))
  TV Layout B: (128,(64,16)):(0,(1,64))
  TV Layout C: ((4,8,4),(2,2,8)):((128,1,16),(64,8,512))
"""
CPP_WARP = """TiledMMA
  ThrLayoutVMNK:  (_32,_2,_2,_1):(_1,_32,_64,_0)
  PermutationMNK: (_32,(_8,_2,_2):(_1,_16,_8),_16)
MMA_Atom
  ThrID:      _32:_1
  Shape_MNK:  (_16,_8,_16)
  LayoutA_TV: ((_4,_8),(_2,_2,_2)):((_32,_1),(_16,_8,_128))
  LayoutB_TV: ((_4,_8),(_2,_2)):((_16,_1),(_8,_64))
  LayoutC_TV: ((_4,_8),(_2,_2)):((_32,_1),(_16,_8))
"""
DSL_WARP = """Tiled MMA
  Thr Layout VMNK: (32,2,2,1):(1,32,64,0)
  Permutation MNK: (32:1,(8,2,2):(1,16,8),16:1)
MMA Atom
  ThrID:           32:1
  Shape MNK:       (16,8,16)
  TV Layout A:     ((4,8),(2,2,2)):((32,1),(16,8,128))
  TV Layout B:     ((4,8),(2,2)):((16,1),(8,64))
  TV Layout C:     ((4,8),(2,2)):((32,1),(16,8))
"""
CPP_LDMATRIX = """Copy_Atom
  ThrID:        _32:_1
  ValLayoutSrc: (_32,_8):(_8,_1)
  ValLayoutDst: (_32,(_2,_4)):(_2,(_1,_64))
  ValLayoutRef: (_32,(_2,_4)):(_2,(_1,_64))
  ValueType:    16b
"""
DSL_LDMATRIX = """Copy Atom
  ThrID:         32:1
  TV Layout Src: (32,8):(8,1)
  TV Layout Dst: (32,(2,4)):(2,(1,64))
  Value type:    f16
"""
CPP_LDMATRIX_A = (
    """TiledCopy
  Tiler_MN:       (_32,_16)
  TiledLayout_TV: ((_4,_8,_2,_2),((_2,_2,_2),(_1,_1))):((_64,_1,_16,_0),((_32,_8,_256),(_0,_0)))
"""
    + CPP_LDMATRIX
)
DSL_LDMATRIX_A = """Tiled Copy
  Tiler MN:        (32:1,16:1)
  TV Layout tiled: ((4,8,2,2),((2,2,2),(1,1))):((64,1,16,0),((32,8,256),(0,0)))
Copy Atom
  ThrID:           32:1
  TV Layout Src:   (32,8):(8,1)
  TV Layout Dst:   (32,(2,4)):(2,(1,64))
  Value type:      f16
"""
CPP_STMATRIX_C = """TiledCopy
  Tiler_MN:       (_64,_64)
  TiledLayout_TV: ((_4,_8,_4),((_2,_2,_8),(_1,_1))):((_128,_1,_16),((_64,_8,_512),(_0,_0)))
Copy_Atom
  ThrID:        _32:_1
  ValLayoutSrc: (_32,(_2,_2)):(_2,(_1,_64))
  ValLayoutDst: ((_16,_2),_8):((_8,_0),_1)
  ValLayoutRef: (_32,(_2,_2)):(_2,(_1,_64))
  ValueType:    16b
"""
CPP_STMATRIX_C_ATOM = """TiledCopy
  Tiler_MN:       ((_8,_4,_2):(_1,_16,_8),(_4,_2,_2):(_2,_1,_8))
  TiledLayout_TV: ((_4,_8,_4),(_2,_2,_2)):((_64,_1,_8),(_256,_32,_512))
Copy_Atom
  ThrID:        _32:_1
  ValLayoutSrc: (_32,(_2,_4)):(_2,(_1,_64))
  ValLayoutDst: (_32,_8):(_8,_1)
  ValLayoutRef: (_32,(_2,_4)):(_2,(_1,_64))
  ValueType:    16b
"""
CPP_CP_ASYNC = """ThrCopy
  ThrIdx: 3
TiledCopy
  Tiler_MN:       (_16,_64)
  TiledLayout_TV: ((_8,_16),_8):((_128,_1),_16)
Copy_Atom
  ThrID:        _1:_0
  ValLayoutSrc: (_1,_8):(_0,_1)
  ValLayoutDst: (_1,_8):(_0,_1)
  ValLayoutRef: (_1,_8):(_0,_1)
  ValueType:    16b
"""
CPP_THR_MMA = "ThrMMA\n  Thr VMNK: (3,1,0,_0)\n" + CPP_WARP

ALL = {name: text for name, text in globals().items() if name.isupper() and isinstance(text, str)}
