//! Finding devices and opening one.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

use super::{Counts, Failure, Flavours, Gpu, Inner, Limits};
use crate::{Error, Result};

/// How a device is chosen and used.
#[derive(Clone, Debug, Default)]
pub struct GpuOptions {
    /// Part of the name of the device that is wanted, or its number in [`devices`].
    pub device: Option<String>,
    /// Whether software that plays a GPU will do.
    pub software: bool,
    /// Only the portable floor: no extras, and limits as small as WebGPU promises.
    pub floor: bool,
    /// Limits lowered further, for tests.
    pub limits: Option<Limits>,
    /// Bytes of memory that the device is taken to have: for tests, and where it does not tell.
    pub memory: Option<u64>,
    /// Whether the page has seen to it that devices come with subgroups: wgpu cannot ask a browser for them.
    pub subgroups: bool,
    /// A shader with another text than its own, for tests of what happens when one is broken.
    #[doc(hidden)]
    pub replaced: Option<(&'static str, &'static str)>,
}

/// A device that is there.
#[derive(Clone, Debug)]
pub struct Found {
    info: wgpu::AdapterInfo,
    /// What it allows.
    pub limits: Limits,
    /// What it can do beyond the floor.
    pub flavours: Flavours,
    /// Whether it tells the time of a dispatch.
    pub timestamps: bool,
    /// Bytes of its memory, where it tells.
    pub memory: Option<u64>,
}

impl Found {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// What kind of device it is.
    pub fn kind(&self) -> &'static str {
        match self.info.device_type {
            wgpu::DeviceType::DiscreteGpu => "discrete",
            wgpu::DeviceType::IntegratedGpu => "integrated",
            wgpu::DeviceType::VirtualGpu => "virtual",
            wgpu::DeviceType::Cpu => "software",
            wgpu::DeviceType::Other => "unknown kind",
        }
    }

    /// Whether it is software that plays a GPU.
    pub fn is_software(&self) -> bool {
        is_software(&self.info)
    }

    /// How it is reached: Vulkan, Metal, DX12.
    pub fn interface(&self) -> &'static str {
        match self.info.backend {
            wgpu::Backend::Vulkan => "Vulkan",
            wgpu::Backend::Metal => "Metal",
            wgpu::Backend::Dx12 => "DX12",
            wgpu::Backend::Gl => "OpenGL",
            wgpu::Backend::BrowserWebGpu => "WebGPU",
            wgpu::Backend::Noop => "none",
        }
    }

    /// Its driver, with a version.
    pub fn driver(&self) -> String {
        driver(&self.info)
    }
}

pub(super) fn is_software(info: &wgpu::AdapterInfo) -> bool {
    // Browsers do not always say so, but for the name.
    let name = info.name.to_lowercase();
    info.device_type == wgpu::DeviceType::Cpu || ["swiftshader", "llvmpipe"].iter().any(|known| name.contains(known))
}

pub(super) fn driver(info: &wgpu::AdapterInfo) -> String {
    [info.driver.as_str(), info.driver_info.as_str()].join(" ").trim().to_owned()
}

/// Share of the memory that a driver grants, in percent, past which allocations fail rather than push others out.
const MOST_MEMORY: u8 = 98;

fn instance() -> wgpu::Instance {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle_from_env();
    descriptor.memory_budget_thresholds.for_resource_creation = Some(MOST_MEMORY);
    wgpu::Instance::new(descriptor)
}

/// Bytes of the largest heap of the device's own, which only Vulkan tells. Software has the host's memory.
#[cfg(any(target_os = "linux", target_os = "windows", target_os = "android"))]
fn memory(adapter: &wgpu::Adapter) -> Option<u64> {
    const DEVICE_LOCAL: u32 = 1;
    if is_software(&adapter.get_info()) {
        return None;
    }
    // SAFETY: the adapter outlives this function, which asks it and keeps nothing.
    let properties = unsafe {
        let vulkan = adapter.as_hal::<wgpu::hal::api::Vulkan>()?;
        let instance = vulkan.shared_instance().raw_instance();
        instance.get_physical_device_memory_properties(vulkan.raw_physical_device())
    };
    let heaps = properties.memory_heaps.iter().take(properties.memory_heap_count as usize);
    heaps.filter(|heap| heap.flags.as_raw() & DEVICE_LOCAL != 0).map(|heap| heap.size).max()
}

#[cfg(not(any(target_os = "linux", target_os = "windows", target_os = "android")))]
fn memory(_: &wgpu::Adapter) -> Option<u64> {
    None
}

async fn adapters() -> Vec<wgpu::Adapter> {
    let mut found = instance().enumerate_adapters(wgpu::Backends::PRIMARY).await;
    // The fastest kind first; software last.
    found.sort_by_key(|adapter| match adapter.get_info().device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    });
    found
}

/// Every device that is there, the one that would be taken first.
pub async fn devices() -> Vec<Found> {
    let describe = |adapter: wgpu::Adapter| Found {
        info: adapter.get_info(),
        limits: limits(&adapter.limits()),
        flavours: flavours(&adapter, adapter.features(), packed_dot(), false),
        timestamps: adapter.features().contains(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES),
        memory: memory(&adapter),
    };
    adapters().await.into_iter().map(describe).collect()
}

/// Whether a search for hardware can find any. Where it cannot, drivers need not be loaded, which takes longer than a small
/// model's answer: on Linux every GPU has a file that its driver opens.
fn hardware_is_possible() -> bool {
    const DRIVERS: [&str; 7] = ["dri", "nvidia", "nvhost", "dxg", "kgsl", "mali", "pvr"];
    if !cfg!(target_os = "linux") {
        return true;
    }
    match std::fs::read_dir("/dev") {
        Ok(files) => files.flatten().any(|file| {
            let name = file.file_name();
            DRIVERS.iter().any(|driver| name.to_string_lossy().starts_with(driver))
        }),
        Err(_) => true,
    }
}

fn limits(limits: &wgpu::Limits) -> Limits {
    Limits {
        binding: limits.max_storage_buffer_binding_size,
        buffer: limits.max_buffer_size,
        workgroup_memory: limits.max_compute_workgroup_storage_size,
        invocations: limits.max_compute_invocations_per_workgroup,
        workgroups: limits.max_compute_workgroups_per_dimension,
        storage_buffers: limits.max_storage_buffers_per_shader_stage,
    }
}

/// The features that flavours are made of, where the adapter has them.
fn wanted_features() -> wgpu::Features {
    wgpu::Features::SUBGROUP
        | wgpu::Features::SHADER_F16
        | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX
        | wgpu::Features::TIMESTAMP_QUERY
        | wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS
        | wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES
}

/// Whether shaders may call packed products, as every native device lets them.
fn packed_dot() -> bool {
    let known = wgpu::WgslLanguageFeatures::Packed4x8IntegerDotProduct;
    !cfg!(target_arch = "wasm32") || instance().wgsl_language_features().contains(known)
}

fn flavours(adapter: &wgpu::Adapter, features: wgpu::Features, packed_dot: bool, subgroups: bool) -> Flavours {
    let info = adapter.get_info();
    let one_size = info.subgroup_min_size == info.subgroup_max_size && info.subgroup_min_size > 0;
    let f16 = features.contains(wgpu::Features::SHADER_F16);
    let tiles = adapter.cooperative_matrix_properties();
    let halves = |p: &wgpu::CooperativeMatrixProperties| {
        (p.m_size, p.n_size, p.k_size) == (16, 16, 16)
            && p.ab_type == wgpu::CooperativeScalarType::F16
            && p.cr_type == wgpu::CooperativeScalarType::F32
    };
    let cooperative = features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX);
    let subgroups = (features.contains(wgpu::Features::SUBGROUP) || subgroups) && one_size;
    Flavours {
        subgroup: subgroups.then_some(info.subgroup_max_size),
        f16,
        cooperative: cooperative && f16 && tiles.iter().any(halves),
        packed_dot,
        unchecked: info.backend != wgpu::Backend::BrowserWebGpu,
    }
}

impl Gpu {
    /// Opens a device.
    ///
    /// # Errors
    /// Where there is none, none of that name, or it cannot be opened.
    pub async fn open(options: &GpuOptions) -> Result<Gpu> {
        if options.device.is_none() && !options.software && !hardware_is_possible() {
            return Err(Error::NoAdapter(String::new()));
        }
        let adapter = choose(adapters().await, options)?;
        let info = adapter.get_info();
        let fail = |what: String| Error::Open { device: info.name.clone(), what };
        let (features, required) = if options.floor {
            (wgpu::Features::empty(), wgpu::Limits::default())
        } else {
            (adapter.features() & wanted_features(), adapter.limits())
        };
        let experimental = if features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX) {
            // SAFETY: cooperative matrices are used by one kernel, which the self-test holds to the plain one at load.
            unsafe { wgpu::ExperimentalFeatures::enabled() }
        } else {
            wgpu::ExperimentalFeatures::disabled()
        };
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("selkie"),
            required_features: features,
            required_limits: required.clone(),
            experimental_features: experimental,
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            trace: wgpu::Trace::Off,
        };
        let (device, queue) = adapter.request_device(&descriptor).await.map_err(|e| fail(e.to_string()))?;
        let failure: Arc<Mutex<Option<Failure>>> = Arc::default();
        let report = |failure: &Arc<Mutex<Option<Failure>>>| {
            let failure = failure.clone();
            move |new: Failure| {
                let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                // The first error is the cause; only a loss weighs more.
                if failure.is_none() || matches!(new, Failure::Lost(_)) {
                    *failure = Some(new);
                }
            }
        };
        let uncaptured = report(&failure);
        device
            .on_uncaptured_error(Arc::new(move |error: wgpu::Error| uncaptured(Failure::Reported(error.to_string()))));
        let lost = report(&failure);
        device.set_device_lost_callback(move |reason, message| {
            let message = message.trim();
            lost(Failure::Lost(if message.is_empty() { format!("{reason:?}") } else { message.into() }));
        });
        let mut found = limits(&required);
        if let Some(lowered) = options.limits {
            found = Limits {
                binding: found.binding.min(lowered.binding),
                buffer: found.buffer.min(lowered.buffer),
                workgroup_memory: found.workgroup_memory.min(lowered.workgroup_memory),
                invocations: found.invocations.min(lowered.invocations),
                workgroups: found.workgroups.min(lowered.workgroups),
                storage_buffers: found.storage_buffers.min(lowered.storage_buffers),
            };
        }
        let flavours = if options.floor {
            Flavours::default()
        } else {
            flavours(&adapter, features, packed_dot(), options.subgroups)
        };
        let inner = Inner {
            timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES),
            memory: options.memory.or_else(|| memory(&adapter)),
            replaced: options.replaced,
            device,
            queue,
            info,
            limits: found,
            counts: Arc::new(Counts::default()),
            failure,
            pipelines: Mutex::default(),
            layouts: Mutex::default(),
            passed: Mutex::default(),
        };
        Ok(Gpu { inner: Arc::new(inner), flavours, fell_back: false })
    }
}

fn choose(found: Vec<wgpu::Adapter>, options: &GpuOptions) -> Result<wgpu::Adapter> {
    let infos: Vec<wgpu::AdapterInfo> = found.iter().map(wgpu::Adapter::get_info).collect();
    let names = || infos.iter().map(|info| info.name.clone()).collect();
    let at = match &options.device {
        Some(wanted) => {
            let lower = wanted.to_lowercase();
            let number = wanted.parse::<usize>().ok().filter(|&n| n < infos.len());
            let named = || infos.iter().position(|info| info.name.to_lowercase().contains(&lower));
            number.or_else(named).ok_or_else(|| Error::NoSuchDevice { wanted: wanted.clone(), found: names() })?
        }
        None => infos.iter().position(|info| options.software || !is_software(info)).ok_or_else(|| {
            let only = infos.first().map_or(String::new(), |info| {
                format!("there is only {}, which is software; name it to use it", info.name)
            });
            Error::NoAdapter(only)
        })?,
    };
    // The index is one of the list.
    found.into_iter().nth(at).ok_or_else(|| Error::NoAdapter(String::new()))
}

/// A shader module: unchecked where the device is native.
pub(super) fn module(gpu: &Gpu, name: &str, text: &str) -> wgpu::ShaderModule {
    let descriptor = wgpu::ShaderModuleDescriptor { label: Some(name), source: wgpu::ShaderSource::Wgsl(text.into()) };
    if gpu.flavours().unchecked {
        let checks = wgpu::ShaderRuntimeChecks {
            bounds_checks: false,
            force_loop_bounding: false,
            ..wgpu::ShaderRuntimeChecks::checked()
        };
        // SAFETY: the shaders are this crate's own, validated, and tests run every one of them; indices come from tables
        // that the same code makes, and loops end by their counters.
        unsafe { gpu.device().create_shader_module_trusted(descriptor, checks) }
    } else {
        gpu.device().create_shader_module(descriptor)
    }
}
