//! Writing MBJS files, byte for byte as the package does.

use std::io::Write;

use super::{Config, LayerKind, MAGIC, TRAILER, truncate_to_f16};
use crate::{Checkpoint, DType, Error, Result, TensorSpec, data::DataWriter};

/// How many values are encoded at a time.
const PIECE: usize = 16 << 10;

/// How an MBJS file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MbjsOptions {
    /// 2 holds f32; 3 holds f16, rounded toward zero; 1 is as 2 without the layers' types, for models all of Mamba-1.
    pub version: u32,
    /// Whether a checksum ends the file. Older readers ignore it.
    pub trailer: bool,
}

impl MbjsOptions {
    /// Half-precision values, with a checksum.
    pub const F16: Self = Self { version: 3, trailer: true };
}

impl Default for MbjsOptions {
    fn default() -> Self {
        Self { version: 2, trailer: true }
    }
}

/// Writes an MBJS file piece by piece: the header when made, then the parameters' values in their order.
///
/// ```
/// use selkie_formats::mbjs::{Config, MbjsOptions, MbjsWriter, initial};
/// let config = Config::parse("config.json", br#"{"vocabSize": 8, "dModel": 4, "numLayers": 1}"#)?;
/// let mut writer = MbjsWriter::new(Vec::new(), &config, MbjsOptions::default())?;
/// for parameter in initial(&config, 7) {
///     writer.write(&parameter?.1)?;
/// }
/// let file = writer.finish()?;
/// # assert_eq!(&file[..4], b"SJBM");
/// # Ok::<(), selkie_formats::Error>(())
/// ```
pub struct MbjsWriter<W: Write> {
    data: DataWriter<Summed<W>>,
    options: MbjsOptions,
    dtype: DType,
}

impl<W: Write> MbjsWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// Where the version is not known, or is 1 for a model with other layers than Mamba-1; and where `out` fails.
    pub fn new(out: W, config: &Config, options: MbjsOptions) -> Result<Self> {
        let MbjsOptions { version, .. } = options;
        let layers = config.layers();
        let mut header = Vec::new();
        header.extend(MAGIC);
        header.extend(version.to_le_bytes());
        match version {
            1 => {
                let other = layers.iter().position(|layer| layer.kind() != LayerKind::Mamba1);
                if let Some(number) = other {
                    let kind = layers[number].kind().name();
                    let what = format!("MBJS version 1 has only layers of mamba1, but layer {number} is {kind}");
                    return Err(Error::Write { what });
                }
            }
            2 | 3 => {
                header.extend((layers.len() as u32).to_le_bytes());
                header.extend(layers.iter().map(|layer| layer.kind().id()));
                header.resize(header.len().next_multiple_of(4), 0);
            }
            _ => return Err(Error::Write { what: format!("MBJS version {version} cannot be written") }),
        }
        let dtype = if version == 3 { DType::F16 } else { DType::F32 };
        let parameters = config.parameters();
        header.extend((parameters.len() as u32).to_le_bytes());
        header.extend(parameters.iter().flat_map(|parameter| (parameter.elements() as u32).to_le_bytes()));
        let spec = |parameter: super::Parameter| TensorSpec { name: parameter.name, dtype, shape: parameter.shape };
        let specs: Vec<TensorSpec> = parameters.into_iter().map(spec).collect();

        let out = Summed { out, sum: crc32fast::Hasher::new() };
        let mut data = DataWriter::new(out, 1, &specs)?;
        data.header(&header)?;
        Ok(Self { data, options, dtype })
    }

    /// Writes the next values of the parameters, in their order; a piece may end anywhere, also in the next parameter.
    ///
    /// # Errors
    /// Where there are more values than the parameters take, where one is finite but too large for f16, and where the
    /// output fails.
    pub fn write(&mut self, mut values: &[f32]) -> Result<()> {
        let mut bytes = Vec::with_capacity(PIECE.min(values.len()) * self.dtype.block_bytes());
        while !values.is_empty() {
            // Not past the end of a parameter, so that errors can name it.
            let room = self.data.room().map_or(PIECE, |bytes| bytes / self.dtype.block_bytes());
            let (now, later) = values.split_at(values.len().min(PIECE).min(room));
            bytes.clear();
            match self.dtype {
                DType::F16 => self.encode_f16(now, &mut bytes)?,
                _ => bytes.extend(now.iter().flat_map(|value| value.to_le_bytes())),
            }
            self.data.write(&bytes)?;
            values = later;
        }
        Ok(())
    }

    /// Ends the file and answers the output.
    ///
    /// # Errors
    /// Where a parameter's values are missing, and where the output fails.
    pub fn finish(self) -> Result<W> {
        let Summed { mut out, sum } = self.data.finish()?;
        if self.options.trailer {
            let trailer = [TRAILER, &sum.finalize().to_le_bytes()].concat();
            let written = out.write_all(&trailer).and_then(|()| out.flush());
            written.map_err(|error| Error::Write { what: error.to_string() })?;
        }
        Ok(out)
    }

    fn encode_f16(&self, values: &[f32], bytes: &mut Vec<u8>) -> Result<()> {
        const INFINITY: u16 = 0x7c00;
        for (index, &value) in values.iter().enumerate() {
            let half = truncate_to_f16(value);
            if half & 0x7fff == INFINITY && value.is_finite() {
                let (name, written) = self.data.current().unwrap_or_default();
                let index = written / self.dtype.block_bytes() as u64 + index as u64;
                let what = format!("parameter `{name}`: value {index} is {value}, but f16 ends at 65504");
                return Err(Error::Write { what });
            }
            bytes.extend(half.to_le_bytes());
        }
        Ok(())
    }
}

/// Writes the parameters of `config` from a checkpoint that has tensors of their names and shapes, of any type of weights.
///
/// # Errors
/// As [`MbjsWriter`]; where a tensor is missing or of another shape; and as [`Checkpoint::read`].
pub async fn write<W: Write>(out: W, config: &Config, options: MbjsOptions, checkpoint: &Checkpoint) -> Result<W> {
    let mut writer = MbjsWriter::new(out, config, options)?;
    for parameter in config.parameters() {
        let info = checkpoint.need(&parameter.name)?;
        let error = |what| {
            let file = checkpoint.name().to_owned();
            Error::Tensor { file, tensor: parameter.name.clone(), what }
        };
        if info.shape != parameter.shape {
            let (found, wanted) = (&info.shape, &parameter.shape);
            return Err(error(format!("its shape is {found:?}, but {} makes it {wanted:?}", config.name())));
        }
        let tensor = checkpoint.read(info).await?;
        if tensor.dtype == writer.dtype {
            // As they are: what a NaN carries would not survive being a number.
            writer.data.write(&tensor.bytes)?;
        } else {
            writer.write(&tensor.to_f32().map_err(|problem| error(problem.to_string()))?)?;
        }
    }
    writer.finish()
}

/// An output that sums what goes through.
struct Summed<W> {
    out: W,
    sum: crc32fast::Hasher,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.sum.update(bytes.get(..written).unwrap_or(bytes));
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}
