//! Writing GGUF files: the header at once, the data as it comes.

use std::io::Write;

use super::{
    ALIGNMENT_KEY, Array, DEFAULT_ALIGNMENT, MAGIC, MAX_ALIGNMENT, MAX_AXES, MAX_DEPTH, Metadata, Value, value_type,
};
use crate::{Error, Result, TensorSpec, data::DataWriter};

/// How a GGUF file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GgufOptions {
    /// 3, or 2 for older readers; the bytes are otherwise the same.
    pub version: u32,
}

impl Default for GgufOptions {
    fn default() -> Self {
        Self { version: 3 }
    }
}

/// Writes a GGUF file piece by piece: the header when made, then the tensors' data in their order.
///
/// The same input gives the same bytes. Nothing but the header is held in memory.
///
/// ```
/// use selkie_formats::{DType, TensorSpec, gguf::{GgufOptions, GgufWriter, Metadata, Value}};
/// let metadata = Metadata::from_iter([("general.architecture", Value::String("llama".into()))]);
/// let tensors = [TensorSpec { name: "x".into(), dtype: DType::F32, shape: vec![2] }];
/// let mut writer = GgufWriter::new(Vec::new(), GgufOptions::default(), &metadata, &tensors)?;
/// writer.write(&1f32.to_le_bytes())?;
/// writer.write(&2f32.to_le_bytes())?;
/// let file = writer.finish()?;
/// # assert_eq!(&file[..4], b"GGUF");
/// # Ok::<(), selkie_formats::Error>(())
/// ```
pub struct GgufWriter<W: Write>(DataWriter<W>);

impl<W: Write> GgufWriter<W> {
    /// Writes the header. `general.alignment` in the metadata is obeyed.
    ///
    /// # Errors
    /// Where a tensor's description is impossible, two have one name, an array is nested too deep, the alignment is no
    /// power of two, the version is none of 2 and 3; and where `out` fails.
    pub fn new(out: W, options: GgufOptions, metadata: &Metadata, tensors: &[TensorSpec]) -> Result<Self> {
        if !matches!(options.version, 2 | 3) {
            return Err(Error::Write { what: format!("GGUF version {} cannot be written", options.version) });
        }
        let alignment = metadata.get(ALIGNMENT_KEY).map_or(Some(DEFAULT_ALIGNMENT), super::alignment);
        let alignment = alignment.ok_or_else(|| {
            let what = format!("`{ALIGNMENT_KEY}`: a power of two up to {MAX_ALIGNMENT} wanted");
            Error::Write { what }
        })?;

        let mut header = Vec::new();
        header.extend(MAGIC);
        header.extend(options.version.to_le_bytes());
        header.extend((tensors.len() as u64).to_le_bytes());
        header.extend((metadata.len() as u64).to_le_bytes());
        for (key, value) in metadata.iter() {
            put_string(&mut header, key);
            put_value(&mut header, value).map_err(|what| Error::Write { what: format!("`{key}`: {what}") })?;
        }
        let mut data = DataWriter::new(out, alignment, tensors)?;
        for (spec, offset) in tensors.iter().zip(data.offsets()) {
            if !spec.dtype.is_ggml() || spec.shape.len() > MAX_AXES as usize || spec.shape.contains(&0) {
                let what = format!("GGUF has no {} of shape {:?}", spec.dtype, spec.shape);
                return Err(Error::Write { what: format!("tensor `{}`: {what}", spec.name) });
            }
            put_string(&mut header, &spec.name);
            header.extend((spec.shape.len() as u32).to_le_bytes());
            for &size in spec.shape.iter().rev() {
                header.extend((size as u64).to_le_bytes());
            }
            header.extend(spec.dtype.ggml_id().to_le_bytes());
            header.extend(offset.to_le_bytes());
        }
        // Padded also where no tensor follows, as readers expect the data to begin somewhere.
        header.resize(header.len().next_multiple_of(alignment as usize), 0);
        data.header(&header)?;
        Ok(Self(data))
    }

    /// Writes the next bytes of the tensors' data, in their order; a piece may end anywhere, also in the next tensor.
    ///
    /// # Errors
    /// Where there are more bytes than the tensors take, and where the output fails.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write(bytes)
    }

    /// Ends the file and answers the output.
    ///
    /// # Errors
    /// Where a tensor's bytes are missing, and where the output fails.
    pub fn finish(self) -> Result<W> {
        self.0.finish()
    }
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Type and value.
fn put_value(out: &mut Vec<u8>, value: &Value) -> Result<(), String> {
    use value_type::*;
    let mut put = |kind: u32, bytes: &[u8]| {
        out.extend(kind.to_le_bytes());
        out.extend(bytes);
    };
    match value {
        Value::U8(value) => put(U8, &value.to_le_bytes()),
        Value::I8(value) => put(I8, &value.to_le_bytes()),
        Value::U16(value) => put(U16, &value.to_le_bytes()),
        Value::I16(value) => put(I16, &value.to_le_bytes()),
        Value::U32(value) => put(U32, &value.to_le_bytes()),
        Value::I32(value) => put(I32, &value.to_le_bytes()),
        Value::F32(value) => put(F32, &value.to_le_bytes()),
        Value::Bool(value) => put(BOOL, &[u8::from(*value)]),
        Value::U64(value) => put(U64, &value.to_le_bytes()),
        Value::I64(value) => put(I64, &value.to_le_bytes()),
        Value::F64(value) => put(F64, &value.to_le_bytes()),
        Value::String(value) => {
            put(STRING, &[]);
            put_string(out, value);
        }
        Value::Array(array) => {
            put(ARRAY, &[]);
            put_array(out, array, 1)?;
        }
    }
    Ok(())
}

/// Type of the elements, their number, the elements.
fn put_array(out: &mut Vec<u8>, array: &Array, depth: usize) -> Result<(), String> {
    use value_type::*;
    if depth > MAX_DEPTH {
        return Err(format!("arrays nested more than {MAX_DEPTH} deep"));
    }
    match array {
        Array::U8(values) => put_numbers(out, U8, values, |value| value.to_le_bytes()),
        Array::I8(values) => put_numbers(out, I8, values, |value| value.to_le_bytes()),
        Array::U16(values) => put_numbers(out, U16, values, |value| value.to_le_bytes()),
        Array::I16(values) => put_numbers(out, I16, values, |value| value.to_le_bytes()),
        Array::U32(values) => put_numbers(out, U32, values, |value| value.to_le_bytes()),
        Array::I32(values) => put_numbers(out, I32, values, |value| value.to_le_bytes()),
        Array::F32(values) => put_numbers(out, F32, values, |value| value.to_le_bytes()),
        Array::Bool(values) => put_numbers(out, BOOL, values, |value| [u8::from(value)]),
        Array::U64(values) => put_numbers(out, U64, values, |value| value.to_le_bytes()),
        Array::I64(values) => put_numbers(out, I64, values, |value| value.to_le_bytes()),
        Array::F64(values) => put_numbers(out, F64, values, |value| value.to_le_bytes()),
        Array::String(values) => {
            put_count(out, STRING, values.len());
            out.extend_from_slice(values.arena());
        }
        Array::Array(values) => {
            put_count(out, ARRAY, values.len());
            for inner in values {
                put_array(out, inner, depth + 1)?;
            }
        }
    }
    Ok(())
}

fn put_numbers<T: Copy, const SIZE: usize>(out: &mut Vec<u8>, kind: u32, values: &[T], write: fn(T) -> [u8; SIZE]) {
    put_count(out, kind, values.len());
    out.extend(values.iter().flat_map(|&value| write(value)));
}

fn put_count(out: &mut Vec<u8>, kind: u32, len: usize) {
    out.extend(kind.to_le_bytes());
    out.extend((len as u64).to_le_bytes());
}
