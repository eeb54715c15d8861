//! Kernels made ready: a shader's text for its defines, compiled for the layout of its bindings.

use std::{fmt, sync::Arc, sync::PoisonError};

use super::Gpu;
use crate::{
    Result,
    preprocess::{Defines, preprocess},
    shader_source,
};

/// How a kernel sees a storage buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// Reads only.
    Read,
    /// Reads and writes.
    Write,
}

/// A shader file with its defines.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shader {
    /// Path from `src` on.
    pub file: &'static str,
    /// What chooses its flavour.
    pub defines: Defines,
}

impl fmt::Display for Shader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.file, self.defines)
    }
}

impl Shader {
    /// The shader in `file`.
    pub fn new(file: &'static str, defines: Defines) -> Self {
        Self { file, defines }
    }

    /// Its text for a device.
    ///
    /// # Errors
    /// Where a directive is wrong.
    pub fn text(&self) -> Result<String> {
        Ok(preprocess(&shader_source, self.file, &self.defines)?)
    }
}

/// What a pipeline is known by: its shader, how it sees the buffers of group 0 behind the parameters, and how many arrays
/// it sees of each slot of a state.
pub(super) type Key = (Shader, Vec<Access>, Vec<usize>);

/// A kernel that can be dispatched.
#[derive(Debug)]
pub struct Pipeline {
    pub(crate) raw: wgpu::ComputePipeline,
    /// Parameters and the buffers behind them.
    pub(crate) layout: wgpu::BindGroupLayout,
}

impl Gpu {
    /// The layout of group 0: a uniform block of parameters, then storage buffers.
    fn own_layout(&self, access: &[Access]) -> wgpu::BindGroupLayout {
        let mut entries = vec![entry(0, wgpu::BufferBindingType::Uniform, false)];
        entries.extend(access.iter().enumerate().map(|(i, &access)| storage(1 + i as u32, access)));
        self.device().create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries })
    }

    /// The layout of group 1, and of those behind it: the step, at an offset of its own for each sequence, then the arrays of a state's slot.
    pub(crate) fn step_layout(&self, planes: usize) -> wgpu::BindGroupLayout {
        let mut layouts = self.inner.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        let key = vec![Access::Write; planes];
        let make = || {
            let mut entries = vec![entry(0, wgpu::BufferBindingType::Uniform, true)];
            entries.extend((0..planes as u32).map(|i| storage(1 + i, Access::Write)));
            let descriptor = wgpu::BindGroupLayoutDescriptor { label: Some("step"), entries: &entries };
            self.device().create_bind_group_layout(&descriptor)
        };
        layouts.entry(key).or_insert_with(make).clone()
    }

    /// The pipeline of a shader, made once. `planes` are the arrays of each slot that it sees, a group each.
    ///
    /// # Errors
    /// Where the shader is wrong or does not fit its bindings, by its name.
    pub async fn pipeline(&self, shader: &Shader, access: &[Access], planes: &[usize]) -> Result<Arc<Pipeline>> {
        let key = (shader.clone(), access.to_vec(), planes.to_vec());
        let known = self.inner.pipelines.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let replaced = self.inner.replaced;
        let source = |path: &str| replaced.filter(|of| of.0 == path).map(|of| of.1).or_else(|| shader_source(path));
        let mut text = preprocess(&source, shader.file, &shader.defines)?;
        if self.inner.info.backend == wgpu::Backend::BrowserWebGpu {
            text.insert_str(0, self.flavours().preamble());
        }
        let name = shader.to_string();
        let make = || {
            let module = super::open::module(self, &name, &text);
            let layout = self.own_layout(access);
            let states: Vec<_> = planes.iter().map(|&planes| self.step_layout(planes)).collect();
            let groups: Vec<_> = std::iter::once(&layout).chain(&states).map(Some).collect();
            let pipeline_layout = self.device().create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: Some(&name),
                bind_group_layouts: &groups,
                immediate_size: 0,
            });
            let raw = self.device().create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(&name),
                layout: Some(&pipeline_layout),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    constants: &[],
                    zero_initialize_workgroup_memory: false,
                },
                cache: None,
            });
            Pipeline { raw, layout }
        };
        let made = Arc::new(self.scoped(&name, make).await?);
        self.inner.pipelines.lock().unwrap_or_else(PoisonError::into_inner).insert(key, made.clone());
        Ok(made)
    }
}

fn entry(binding: u32, ty: wgpu::BufferBindingType, dynamic: bool) -> wgpu::BindGroupLayoutEntry {
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: dynamic, min_binding_size: None },
        count: None,
    }
}

fn storage(binding: u32, access: Access) -> wgpu::BindGroupLayoutEntry {
    entry(binding, wgpu::BufferBindingType::Storage { read_only: access == Access::Read }, false)
}
