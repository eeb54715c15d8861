//! Reading MBJS files against a configuration.

use super::{Config, LayerKind, MAGIC, Parameter, TRAILER, TRAILER_LEN};
use crate::{ByteSource, DType, Error, Result, TensorInfo};

/// How much of a file is summed at a time.
const PIECE: u64 = 4 << 20;

/// What an MBJS file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MbjsFile {
    /// 1 and 2 hold f32, 3 holds f16; 1 knows no types of layers.
    pub version: u32,
    /// Whether a checksum ends the file; it is right.
    pub trailer: bool,
    /// The parameters, as of source 0, in the file's order: [`Config::parameters`].
    pub tensors: Vec<TensorInfo>,
}

impl MbjsFile {
    /// Reads a file of the model that `config` describes. Where the file has a checksum, all of it is read once, in
    /// pieces; the values are not touched otherwise. Bytes after the last parameter are ignored.
    ///
    /// # Errors
    /// [`Error::Header`] and [`Error::Tensor`] where the checksum is wrong, it is no MBJS file or of a version that is
    /// not known, it is of another schedule or other sizes than `config`, or too short; and the source's own.
    pub async fn read(source: &dyn ByteSource, config: &Config) -> Result<Self> {
        let trailer = check_sum(source).await?;
        let end = source.len() - if trailer { TRAILER_LEN } else { 0 };
        let mut header = Header { source, at: 0, end };

        if end < MAGIC.len() as u64 || header.bytes(MAGIC.len() as u64, "the magic number").await?[..] != MAGIC {
            return Err(header.error(0, format!("not an MBJS file ({} bytes)", source.len())));
        }
        let version = header.u32("the version").await?;
        if !(1..=3).contains(&version) {
            return Err(header.error(4, format!("MBJS version {version}; only 1, 2 and 3 are known")));
        }
        if version > 1 {
            header.check_layers(config).await?;
        }
        let parameters = config.parameters();
        header.check_parameters(config, &parameters).await?;

        let dtype = if version == 3 { DType::F16 } else { DType::F32 };
        let mut tensors = Vec::with_capacity(parameters.len());
        let mut start = header.at;
        for parameter in parameters {
            let stop = start + parameter.elements() as u64 * dtype.block_bytes() as u64;
            if stop > end {
                let file = source.name().to_owned();
                let what = format!("its bytes are {start}..{stop}, but the file's data ends at {end}");
                return Err(Error::Tensor { file, tensor: parameter.name, what });
            }
            let (name, shape) = (parameter.name, parameter.shape);
            tensors.push(TensorInfo { name, dtype, shape, source: 0, range: start..stop });
            start = stop;
        }
        Ok(Self { version, trailer, tensors })
    }
}

/// Checks the checksum that ends the file; answers whether there is one.
async fn check_sum(source: &dyn ByteSource) -> Result<bool> {
    let file = || source.name().to_owned();
    let Some(end) = source.len().checked_sub(TRAILER_LEN) else { return Ok(false) };
    let trailer = source.read(end..source.len()).await?;
    let Some((TRAILER, sum)) = trailer.split_at_checked(TRAILER.len()) else { return Ok(false) };
    let wanted = sum.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)).unwrap_or_default();
    let mut found = crc32fast::Hasher::new();
    let mut at = 0;
    while at < end {
        let stop = end.min(at + PIECE);
        let piece = source.read(at..stop).await?;
        if piece.len() as u64 != stop - at {
            return Err(Error::Read { file: file(), what: format!("bytes {at}..{stop}: only {} came", piece.len()) });
        }
        found.update(&piece);
        at = stop;
    }
    let found = found.finalize();
    if found != wanted {
        let what = format!("the file's checksum is {wanted:08x}, but its bytes give {found:08x}: it is damaged");
        return Err(Error::Header { file: file(), offset: end, what });
    }
    Ok(true)
}

/// The part of a file before the values.
struct Header<'a> {
    source: &'a dyn ByteSource,
    at: u64,
    /// Where the file ends, without the trailer.
    end: u64,
}

impl Header<'_> {
    fn error(&self, offset: u64, what: String) -> Error {
        Error::Header { file: self.source.name().to_owned(), offset, what }
    }

    /// The next `len` bytes, which hold `what`.
    async fn bytes(&mut self, len: u64, what: &str) -> Result<bytes::Bytes> {
        let stop = self.at.checked_add(len).filter(|stop| *stop <= self.end);
        let stop = stop.ok_or_else(|| self.error(self.at, format!("the file ends within {what}")))?;
        let bytes = self.source.read(self.at..stop).await?;
        self.at = stop;
        Ok(bytes)
    }

    async fn u32(&mut self, what: &str) -> Result<u32> {
        let bytes = self.bytes(4, what).await?;
        let number = bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        number.ok_or_else(|| self.error(self.at, format!("the file ends within {what}")))
    }

    /// Number and types of the layers.
    async fn check_layers(&mut self, config: &Config) -> Result<()> {
        let (at, count) = (self.at, self.u32("the number of layers").await?);
        let layers = config.layers();
        if count as usize != layers.len() {
            let what = format!("{count} layers, but {} has {}", config.name(), layers.len());
            return Err(self.error(at, what));
        }
        let at = self.at;
        let ids = self.bytes(u64::from(count).next_multiple_of(4), "the types of the layers").await?;
        for (number, (&id, layer)) in ids.iter().zip(layers).enumerate() {
            let (found, wanted) = (LayerKind::from_id(id), layer.kind());
            if found != wanted {
                let known = if found.id() == id { String::new() } else { format!(" (by its unknown type {id})") };
                let what =
                    format!("layer {number} is {}{known}, but {} says {}", found.name(), config.name(), wanted.name());
                return Err(self.error(at + number as u64, what));
            }
        }
        Ok(())
    }

    /// Number and sizes of the parameters.
    async fn check_parameters(&mut self, config: &Config, parameters: &[Parameter]) -> Result<()> {
        let (at, count) = (self.at, self.u32("the number of parameters").await?);
        // The first sizes are compared even where the numbers differ: they tell where.
        let here = (self.end - self.at) / 4;
        let compared = u64::from(count).min(parameters.len() as u64);
        if compared > here {
            let what = format!("{count} parameters, but the file ends at {}", self.end);
            return Err(self.error(at, what));
        }
        let sizes = self.bytes(compared * 4, "the sizes of the parameters").await?;
        let (sizes, _) = sizes.as_chunks();
        let sizes = sizes.iter().map(|bytes| u32::from_le_bytes(*bytes));
        let differs = |(parameter, size): &(&Parameter, u32)| parameter.elements() as u64 != u64::from(*size);
        let first = parameters.iter().zip(sizes).find(differs).map(|(parameter, size)| {
            let (shape, elements) = (&parameter.shape, parameter.elements());
            let what = format!("{size} values, but {} makes it {shape:?}, {elements} values", config.name());
            (parameter.name.clone(), what)
        });
        if count as usize != parameters.len() {
            let first = first.map(|(name, what)| format!("; the first that differs is `{name}`: {what}"));
            let what = format!(
                "{count} parameters, but {} has {}{}",
                config.name(),
                parameters.len(),
                first.unwrap_or_default()
            );
            return Err(self.error(at, what));
        }
        match first {
            Some((tensor, what)) => Err(Error::Tensor { file: self.source.name().to_owned(), tensor, what }),
            None => Ok(()),
        }
    }
}
