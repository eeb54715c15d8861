//! Buffers that are counted while they live, and how their bytes come and go.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{Gpu, later::Later};
use crate::{Error, Result};

/// What was made on a device and is still there.
#[derive(Debug, Default)]
pub struct Counts {
    buffers: AtomicU64,
    bytes: AtomicU64,
    made: AtomicU64,
}

impl Counts {
    /// Buffers that are alive.
    pub fn buffers(&self) -> u64 {
        self.buffers.load(Ordering::Relaxed)
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Buffers that were ever made.
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }
}

/// A buffer on the device; freed with its last owner.
#[derive(Debug)]
pub struct Buffer {
    raw: wgpu::Buffer,
    label: String,
    counts: Arc<Counts>,
}

impl Buffer {
    /// As wgpu has it.
    pub fn raw(&self) -> &wgpu::Buffer {
        &self.raw
    }

    /// What it is for.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.raw.size()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.counts.buffers.fetch_sub(1, Ordering::Relaxed);
        self.counts.bytes.fetch_sub(self.raw.size(), Ordering::Relaxed);
        self.raw.destroy();
    }
}

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Kernels read and write it; bytes can be copied in and out.
    Storage,
    /// Constants of kernels.
    Uniform,
    /// Both: what a token brings, read as either.
    Inputs,
    /// Times are resolved into it.
    Times,
    /// Read by the host.
    Readback,
    /// Filled by the host, copied from.
    Staging,
}

impl Use {
    fn usages(self) -> wgpu::BufferUsages {
        use wgpu::BufferUsages as U;
        match self {
            Use::Storage => U::STORAGE | U::COPY_SRC | U::COPY_DST,
            Use::Uniform => U::UNIFORM | U::COPY_DST,
            Use::Inputs => U::UNIFORM | U::STORAGE | U::COPY_DST | U::COPY_SRC,
            Use::Times => U::QUERY_RESOLVE | U::COPY_SRC,
            Use::Readback => U::MAP_READ | U::COPY_DST,
            Use::Staging => U::MAP_WRITE | U::COPY_SRC,
        }
    }
}

impl Gpu {
    /// A buffer of `bytes`, rounded up to 16, full of zeros.
    ///
    /// # Errors
    /// Where it is larger than a buffer may be, or there is no memory for it.
    pub async fn buffer(&self, label: &str, bytes: u64, purpose: Use) -> Result<Arc<Buffer>> {
        let size = bytes.next_multiple_of(16).max(16);
        if size > self.limits().buffer {
            return Err(Error::Limit {
                what: label.into(),
                wanted: size,
                limit: self.limits().buffer,
                device: self.name().into(),
                hint: String::new(),
            });
        }
        let memory = self.device().push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let descriptor =
            wgpu::BufferDescriptor { label: Some(label), size, usage: purpose.usages(), mapped_at_creation: false };
        let made = self.scoped(label, || self.device().create_buffer(&descriptor)).await;
        let full = memory.pop().await.is_some();
        let raw = match made {
            Err(Error::Kernel { what, .. }) if !full && !what.to_lowercase().contains("memory") => {
                return Err(Error::Kernel { kernel: label.into(), what });
            }
            Err(error @ Error::Lost(_)) => return Err(error),
            Ok(raw) if !full => raw,
            _ => {
                return Err(Error::OutOfMemory {
                    what: label.into(),
                    bytes: size,
                    device: self.name().into(),
                    hint: "a smaller model, quantisation or context needs less".into(),
                });
            }
        };
        let counts = self.inner.counts.clone();
        counts.buffers.fetch_add(1, Ordering::Relaxed);
        counts.bytes.fetch_add(raw.size(), Ordering::Relaxed);
        counts.made.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Buffer { raw, label: label.into(), counts }))
    }

    /// The bytes of a buffer that was made to be read, once all that was submitted before is done. Bytes go to `take`.
    ///
    /// # Errors
    /// Where the device is lost, or an error came meanwhile.
    pub async fn read<T>(&self, buffer: &Buffer, range: Range<u64>, take: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let mapped: Later<Result<(), String>> = Later::default();
        let tell = mapped.teller();
        let slice = buffer.raw.slice(range);
        slice.map_async(wgpu::MapMode::Read, move |result| tell(result.map_err(|e| e.to_string())));
        self.poll()?;
        let mapped = mapped.await;
        self.check()?;
        mapped.map_err(Error::Lost)?;
        let view = slice.get_mapped_range().map_err(|e| Error::Lost(e.to_string()))?;
        let taken = take(&view);
        drop(view);
        buffer.raw.unmap();
        Ok(taken)
    }
}
