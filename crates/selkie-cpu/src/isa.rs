//! Which instruction set runs the kernels: asked once, at run time.
#![allow(unsafe_code)]

use std::{fmt, sync::OnceLock};

use crate::simd::Kernel;

/// An instruction set which this processor has. Only sets that are there can be named, so holding one is proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Isa(Set);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
enum Set {
    /// Not where a module is compiled for vectors: nothing would choose it, and it would double the module.
    #[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// SIMD128, with relaxed SIMD where the crate is built for it.
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    Wasm,
}

impl Isa {
    /// The sets which this processor has, best first; `scalar` is last, and there wherever the vectors are
    /// asked for at run time.
    #[allow(clippy::vec_init_then_push, reason = "on some targets nothing is asked in between")]
    pub fn available() -> &'static [Isa] {
        static SETS: OnceLock<Vec<Isa>> = OnceLock::new();
        SETS.get_or_init(|| {
            let mut sets = Vec::new();
            #[cfg(target_arch = "x86_64")]
            {
                let avx2 = is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c");
                // Without the integer dot product of VNNI the wider registers gain little and cost clock: AVX2 then.
                let avx512 = is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni");
                if avx2 && avx512 {
                    sets.push(Isa(Set::Avx512));
                }
                if avx2 {
                    sets.push(Isa(Set::Avx2));
                }
            }
            #[cfg(target_arch = "aarch64")]
            if std::arch::is_aarch64_feature_detected!("neon") && std::arch::is_aarch64_feature_detected!("dotprod") {
                sets.push(Isa(Set::Neon));
            }
            // A module that uses what its browser lacks is not compiled in the first place.
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            sets.push(Isa(Set::Wasm));
            #[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
            sets.push(Isa(Set::Scalar));
            sets
        })
    }

    /// The set to use: the best there is, unless the environment variable `SELKIE_ISA` names another that is there.
    pub fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| {
            let wanted = std::env::var("SELKIE_ISA").ok().and_then(|name| Isa::from_name(&name));
            wanted.unwrap_or(Isa::available()[0])
        })
    }

    /// The set of that name, if this processor has it.
    pub fn from_name(name: &str) -> Option<Isa> {
        Isa::available().iter().copied().find(|isa| isa.name().eq_ignore_ascii_case(name))
    }

    /// `scalar`, `avx2`, `avx512` (with VNNI), `neon` (with dotprod), `simd128` or `relaxed` (SIMD128 with relaxed SIMD).
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
            Set::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => "avx512",
            #[cfg(target_arch = "aarch64")]
            Set::Neon => "neon",
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Set::Wasm if cfg!(target_feature = "relaxed-simd") => "relaxed",
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Set::Wasm => "simd128",
        }
    }

    /// Runs the flavour of `kernel` that is compiled for this set.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            #[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
            Set::Scalar => kernel.run(crate::simd::scalar::Scalar),
            // SAFETY: `available` makes an `Isa` only after the processor answered that it has these features.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => unsafe { crate::simd::avx2::run(kernel) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { crate::simd::avx512::run(kernel) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Set::Neon => unsafe { crate::simd::neon::run(kernel) },
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Set::Wasm => crate::simd::wasm::run(kernel),
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
