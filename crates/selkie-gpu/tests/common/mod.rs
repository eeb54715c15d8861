//! A small way to a device: one shader, its buffers, the words that come back.

use selkie_gpu::{Defines, preprocess, shader_source};
use wgpu::{BufferUsages, util::DeviceExt};

/// A device, of the machine's first Vulkan adapter.
pub struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
}

impl Gpu {
    /// Opens it; a machine without one fails the test, since nothing would be tested.
    pub fn open() -> Self {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::VULKAN;
        let instance = wgpu::Instance::new(descriptor);
        let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default()))
            .expect("these tests need a Vulkan adapter; Mesa's lavapipe is one for machines without a GPU");
        println!("{:?}", adapter.get_info());
        let (device, queue) =
            pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default())).expect("a device");
        Self { device, queue }
    }

    /// Runs `text` once over `inputs` and a uniform; gives `words` words of the buffer at `output`. Binding `i` of the
    /// inputs is the first of the pair.
    pub fn run(
        &self,
        text: &str,
        inputs: &[(u32, &[u32])],
        output: (u32, usize),
        uniform: (u32, &[u32]),
        groups: u32,
    ) -> Vec<u32> {
        let device = &self.device;
        let source = wgpu::ShaderSource::Wgsl(text.into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
        let entry = |binding, ty| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
            count: None,
        };
        let storage = |read_only| wgpu::BufferBindingType::Storage { read_only };
        let mut entries: Vec<_> = inputs.iter().map(|(at, _)| entry(*at, storage(true))).collect();
        entries.extend([entry(output.0, storage(false)), entry(uniform.0, wgpu::BufferBindingType::Uniform)]);
        // Not the pipeline's own layout, which lacks what the shader does not read.
        let layout =
            device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
        let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            bind_group_layouts: &[Some(&layout)],
            ..Default::default()
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: None,
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        let filled = |words: &[u32], usage| {
            let contents = bytemuck::cast_slice(words);
            device.create_buffer_init(&wgpu::util::BufferInitDescriptor { label: None, contents, usage })
        };
        let empty = |usage| {
            let size = 4 * output.1 as u64;
            device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
        };
        let inputs: Vec<_> = inputs.iter().map(|(at, words)| (*at, filled(words, BufferUsages::STORAGE))).collect();
        let uniform = (uniform.0, filled(uniform.1, BufferUsages::UNIFORM));
        let out = (output.0, empty(BufferUsages::STORAGE | BufferUsages::COPY_SRC));
        let back = empty(BufferUsages::MAP_READ | BufferUsages::COPY_DST);
        let buffers = inputs.iter().chain([&uniform, &out]);
        let entries: Vec<_> = buffers
            .map(|(binding, buffer)| wgpu::BindGroupEntry { binding: *binding, resource: buffer.as_entire_binding() })
            .collect();
        let bind_group =
            device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout: &layout, entries: &entries });
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &bind_group, &[]);
        pass.dispatch_workgroups(groups, 1, 1);
        drop(pass);
        encoder.copy_buffer_to_buffer(&out.1, 0, &back, 0, 4 * output.1 as u64);
        self.queue.submit([encoder.finish()]);
        back.map_async(wgpu::MapMode::Read, .., |result| result.expect("a buffer that can be read"));
        device.poll(wgpu::PollType::wait_indefinitely()).expect("a device that answers");
        let view = back.get_mapped_range(..).expect("a mapped buffer");
        bytemuck::cast_slice(&view).to_vec()
    }
}

/// The text of a shader.
pub fn text(file: &str, defines: &Defines) -> String {
    preprocess(&shader_source, file, defines).unwrap_or_else(|e| panic!("{e}"))
}
