//! A device: what it can do, what was made on it, and what went wrong on it.

mod buffer;
mod later;
mod open;
mod pipeline;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

pub use buffer::{Buffer, Counts, Use};
pub use open::{Found, GpuOptions, devices};
pub use pipeline::{Access, Pipeline, Shader};

use crate::{Error, Result, self_test};

/// The limits of WebGPU that matter here, as the device has them or as they were lowered on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest range of a buffer that a kernel can see, in bytes.
    pub binding: u64,
    /// Largest buffer, in bytes.
    pub buffer: u64,
    /// Workgroup memory, in bytes.
    pub workgroup_memory: u32,
    /// Invocations of a workgroup.
    pub invocations: u32,
    /// Workgroups in one dimension.
    pub workgroups: u32,
    /// Storage buffers of a kernel.
    pub storage_buffers: u32,
}

impl Limits {
    /// What every WebGPU device has.
    pub const FLOOR: Limits = Limits {
        binding: 128 << 20,
        buffer: 256 << 20,
        workgroup_memory: 16 << 10,
        invocations: 256,
        workgroups: 65_535,
        storage_buffers: 8,
    };
}

/// What goes beyond the portable floor: kernels have a flavour with each, chosen by what the adapter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Flavours {
    /// Invocations of a subgroup, where all subgroups have that many and may be used.
    pub subgroup: Option<u32>,
    /// Half floats in shaders.
    pub f16: bool,
    /// 16 x 16 x 16 products of half floats, summed in f32, by a subgroup together.
    pub cooperative: bool,
    /// Products of packed signed bytes that the device has an instruction for.
    pub packed_dot: bool,
    /// Shaders without bounds checks: they were validated, and their indices are the table's.
    pub unchecked: bool,
}

/// A device with its queue. Clones are the same device.
#[derive(Clone)]
pub struct Gpu {
    inner: Arc<Inner>,
    flavours: Flavours,
    /// Whether they are not the device's own, which failed.
    fell_back: bool,
}

struct Inner {
    device: wgpu::Device,
    queue: wgpu::Queue,
    info: wgpu::AdapterInfo,
    limits: Limits,
    timestamps: bool,
    memory: Option<u64>,
    replaced: Option<(&'static str, &'static str)>,
    counts: Arc<Counts>,
    /// The first error that no scope caught, or why the device is gone.
    failure: Arc<Mutex<Option<Failure>>>,
    pipelines: Mutex<HashMap<pipeline::Key, Arc<Pipeline>>>,
    layouts: Mutex<HashMap<Vec<Access>, wgpu::BindGroupLayout>>,
    /// Self-tests that went well.
    passed: Mutex<HashSet<(Flavours, self_test::Key)>>,
}

#[derive(Clone, Debug)]
enum Failure {
    Lost(String),
    Reported(String),
}

impl Flavours {
    /// What a browser wants to read at the top of a shader, and naga does not know.
    pub fn preamble(&self) -> &'static str {
        match self.subgroup {
            Some(_) => "enable subgroups;\ndiagnostic(off, subgroup_uniformity);\n",
            None => "",
        }
    }
}

impl Gpu {
    /// The device as wgpu has it.
    pub fn device(&self) -> &wgpu::Device {
        &self.inner.device
    }

    /// Where commands go.
    pub fn queue(&self) -> &wgpu::Queue {
        &self.inner.queue
    }

    /// Its name, driver and interface, for people.
    pub fn describe(&self) -> String {
        let info = &self.inner.info;
        let plain = if self.fell_back { "; plain kernels, since its own failed the self-test" } else { "" };
        format!("{} ({}, {}{plain})", info.name, info.backend, open::driver(info))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.info.name
    }

    /// Whether it is software that plays a GPU.
    pub fn is_software(&self) -> bool {
        open::is_software(&self.inner.info)
    }

    /// What it allows.
    pub fn limits(&self) -> Limits {
        self.inner.limits
    }

    /// What it can do beyond the floor.
    pub fn flavours(&self) -> Flavours {
        self.flavours
    }

    /// The same device with nothing beyond the floor.
    pub(crate) fn plain(&self) -> Gpu {
        Gpu { inner: self.inner.clone(), flavours: Flavours::default(), fell_back: true }
    }

    pub(crate) fn has_passed(&self, test: self_test::Key) -> bool {
        self.inner.passed.lock().unwrap_or_else(PoisonError::into_inner).contains(&(self.flavours, test))
    }

    pub(crate) fn pass(&self, test: self_test::Key) {
        self.inner.passed.lock().unwrap_or_else(PoisonError::into_inner).insert((self.flavours, test));
    }

    /// Whether the time of a dispatch can be measured on the device.
    pub fn has_timestamps(&self) -> bool {
        self.inner.timestamps
    }

    /// Bytes of its memory, where it tells.
    pub fn memory(&self) -> Option<u64> {
        self.inner.memory
    }

    /// What was made on it and is still there.
    pub fn counts(&self) -> &Counts {
        &self.inner.counts
    }

    /// The error that came since the last call outside every scope, if any. A lost device stays lost.
    ///
    /// # Errors
    /// That error.
    pub fn check(&self) -> Result<()> {
        let mut failure = self.inner.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match failure.clone() {
            None => Ok(()),
            Some(Failure::Lost(why)) => Err(Error::Lost(why)),
            Some(Failure::Reported(what)) => {
                *failure = None;
                Err(Error::Reported(what))
            }
        }
    }

    fn check_lost(&self) -> Result<()> {
        match &*self.inner.failure.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Failure::Lost(why)) => Err(Error::Lost(why.clone())),
            _ => Ok(()),
        }
    }

    /// Runs `make` so that whatever it does wrong comes back as an error of the kernel or thing called `name`.
    ///
    /// # Errors
    /// The first error inside.
    pub(crate) async fn scoped<T>(&self, name: &str, make: impl FnOnce() -> T) -> Result<T> {
        let memory = self.device().push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let internal = self.device().push_error_scope(wgpu::ErrorFilter::Internal);
        let validation = self.device().push_error_scope(wgpu::ErrorFilter::Validation);
        let made = make();
        for scope in [validation, internal, memory] {
            if let Some(error) = scope.pop().await {
                self.check_lost()?;
                return Err(Error::Kernel { kernel: name.into(), what: error.to_string() });
            }
        }
        // On a device that is gone everything seems to succeed.
        self.check_lost()?;
        Ok(made)
    }

    /// Waits until everything submitted is done.
    ///
    /// # Errors
    /// An error that came meanwhile.
    pub async fn wait(&self) -> Result<()> {
        let done = later::Later::default();
        let tell = done.teller();
        self.queue().on_submitted_work_done(move || tell(()));
        self.poll()?;
        done.await;
        self.check()
    }

    /// Outside a browser nothing happens unless somebody waits.
    fn poll(&self) -> Result<()> {
        let polled = self.device().poll(wgpu::PollType::wait_indefinitely());
        self.check()?;
        polled.map(drop).map_err(|e| Error::Lost(e.to_string()))
    }

    /// Ends the device, as a driver or a browser may at any time. For tests of what happens then.
    pub fn destroy(&self) {
        self.device().destroy();
    }
}
