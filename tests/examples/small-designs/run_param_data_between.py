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
        s, c = tile(0,0), tile(0,2)
        k = external_func("k", inputs=[B,B,np.int32], link_with="k.o")
        inn = object_fifo("inn", s, c, 2, B)
        out = object_fifo("out", c, s, 2, B)
        p = buffer(c, T(np.int32, 1), "p", use_write_rtp=True)
        @core(c)
        def body():
            for _ in range_(0xFFFFFFFF):
                a = inn.acquire(ObjectFifoPort.Consume, 1)
                b = out.acquire(ObjectFifoPort.Produce, 1)
                k(a, b, p[0])
                inn.release(ObjectFifoPort.Consume, 1)
                out.release(ObjectFifoPort.Produce, 1)
        @runtime_sequence(T(np.int8,256), T(np.int8,64), T(np.int8,256))
        def seq(A, F, C):
            npu_load_pdi(device_ref="main")
            t1 = shim_dma_single_bd_task(inn, A, offset=0, sizes=[1,1,1,256], strides=[0,0,0,1])
            t2 = shim_dma_single_bd_task(out, C, offset=0, sizes=[1,1,1,256], strides=[0,0,0,1], issue_token=True)
            dma_start_task(t2)
            npu_rtp_write('p', 0, 2)
            dma_start_task(t1)
            dma_await_task(t2)
            dma_free_task(t1)
    print(ctx.module)
