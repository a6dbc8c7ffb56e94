import numpy as np
from aie.dialects.aie import *
from aie.dialects.aiex import *
from aie.dialects.arith import IndexCastOp
from aie.ir import IndexType
from aie.extras.context import mlir_mod_ctx
from aie.helpers.dialects.scf import _for as range_
def T(dt, *shape): return np.ndarray[tuple(shape), np.dtype[dt]]
with mlir_mod_ctx() as ctx:
    @device(AIEDevice.npu2, sym_name="main")
    def main():
        B = T(np.int8, 64)
        s, s1, m, c, d = tile(0,0), tile(1,0), tile(0,1), tile(0,2), tile(0,3)
        k = external_func("k", inputs=[B,B], link_with="k.o")
        i0 = object_fifo("i0", s, c, 2, B)
        i1 = object_fifo("i1", s1, d, 2, B)
        p0 = object_fifo("p0", c, m, 2, B)
        p1 = object_fifo("p1", d, m, 2, B)
        pass
        pass
        out = object_fifo("out", m, s, 2, T(np.int8, 128))
        object_fifo_link([p0, p1], out, [0, 64])
        def prog(place, i, p):
            @core(place)
            def body():
                for _ in range_(0xFFFFFFFF):
                    a = i.acquire(ObjectFifoPort.Consume, 1)
                    b = p.acquire(ObjectFifoPort.Produce, 1)
                    k(a, b)
                    i.release(ObjectFifoPort.Consume, 1)
                    p.release(ObjectFifoPort.Produce, 1)
        prog(c, i0, p0); prog(d, i1, p1)
        n = 6
        @runtime_sequence(T(np.int8,64*n), T(np.int8,64*n), T(np.int8,128*n))
        def seq(A, F, C):
            npu_load_pdi(device_ref="main")
            n0 = n // 1; n1 = n // 1
            t0 = shim_dma_single_bd_task(i0, A, offset=0, sizes=[1,1,1,64*n0], strides=[0,0,0,1])
            t1 = shim_dma_single_bd_task(i1, F, offset=0, sizes=[1,1,1,64*n1], strides=[0,0,0,1])
            t2 = shim_dma_single_bd_task(out, C, offset=0, sizes=[1,1,1,128*n], strides=[0,0,0,1], issue_token=True)
            dma_start_task(t0, t1, t2)
            dma_await_task(t2)
            dma_free_task(t0, t1)
    print(ctx.module)
