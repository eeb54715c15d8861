//! The CPU executor: SIMD kernels over quantised blocks, and the threads that run them.
//!
//! Weights ([`Matrix`]) stay in the encoding of their file. A product reads blocks, unpacks them in registers or in a
//! panel that stays in the first-level cache, and multiplies them as integers with activations in eight bits
//! ([`Activations::fast`]) or in f32 ([`Activations::exact`]).

mod bandwidth;
mod error;
mod executor;
mod isa;
mod kernels;
mod matrix;
mod pool;
mod simd;

pub use bandwidth::read_bandwidth;
pub use error::{Error, Result};
pub use executor::{CpuExecutor, CpuOptions};
pub use isa::Isa;
pub use kernels::{
    attention::{Attention, attention},
    heads::{join_heads, rank_expand, rank_reduce, scale_rows},
    kv_cache::{CacheType, KvCache},
    matmul::{Product, matmul, matmul_gated},
    q8::{Activations, Q8},
    recurrent::{
        MAX_REWIND,
        conv::{CausalConv, ConvState},
        cssd::{Cssd, CssdState},
        delta::{DeltaRule, DeltaState},
        mamba3::{Mamba3, Mamba3Inputs, Mamba3Parameters, Mamba3State},
        selective_scan::{ScanState, SelectiveScan},
        ssd::{Ssd, SsdState},
        state::RecurrentState,
    },
    vector::{
        Activation, Pairing, activate, add_scaled, clamped_swiglu, gate, multiply, rms_norm, rope, scale, softmax,
    },
};
pub use matrix::Matrix;
pub use pool::Pool;
