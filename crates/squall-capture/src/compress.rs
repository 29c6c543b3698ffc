//! Compression in blocks: each becomes a separate frame (zstd, lz4) or member (gzip). Readers of
//! these formats treat consecutive ones as one file, so a file that ends after any of them is
//! complete.

use std::{fmt, io, io::Write, str::FromStr};

use lz4_flex::frame::{BlockSize, FrameEncoder, FrameInfo};

/// A method and its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    pub method: Method,
    /// `None`: the fastest level.
    pub level: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// RFC 8878; levels 1 to 19.
    Zstd,
    /// RFC 1952; levels 1 to 9.
    Gzip,
    /// LZ4 frames; no levels.
    Lz4,
}

impl Method {
    const ALL: [Self; 3] = [Self::Zstd, Self::Gzip, Self::Lz4];

    /// The suffix of file names.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Zstd => "zst",
            Self::Gzip => "gz",
            Self::Lz4 => "lz4",
        }
    }

    /// The method for a file name.
    pub fn of_name(name: &str) -> Option<Self> {
        let suffix = name.rsplit_once('.')?.1;
        Self::ALL.into_iter().find(|method| method.suffix() == suffix)
    }

    fn most(self) -> i32 {
        match self {
            Self::Zstd => 19,
            Self::Gzip => 9,
            Self::Lz4 => 1,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gz",
            Self::Lz4 => "lz4",
        })
    }
}

/// Parses `zstd`, `gz:6` and so on.
impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, level) =
            text.split_once(':').map_or((text, None), |(name, level)| (name, Some(level)));
        let method = match name {
            "zstd" | "zst" => Method::Zstd,
            "gz" | "gzip" => Method::Gzip,
            "lz4" => Method::Lz4,
            _ => return Err(format!("found {name:?}, expected zstd, gz or lz4, such as zstd:3")),
        };
        let level = match level {
            None => None,
            Some(text) => match text.parse() {
                Ok(level) if (1..=method.most()).contains(&level) => Some(level),
                _ => {
                    return Err(format!(
                        "found level {text:?}, expected 1 to {} for {method}",
                        method.most()
                    ));
                }
            },
        };
        Ok(Self { method, level })
    }
}

/// Compresses block after block.
pub(crate) struct Compressor {
    compression: Compression,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    out: Vec<u8>,
}

impl Compressor {
    pub fn new(compression: Compression) -> io::Result<Self> {
        let zstd = match compression.method {
            Method::Zstd => Some(zstd::bulk::Compressor::new(compression.level.unwrap_or(1))?),
            _ => None,
        };
        Ok(Self { compression, zstd, out: Vec::new() })
    }

    /// Compresses `octets`. The result is valid until the next call.
    pub fn compress(&mut self, octets: &[u8]) -> io::Result<&[u8]> {
        self.out.clear();
        match (self.compression.method, &mut self.zstd) {
            (Method::Zstd, Some(zstd)) => {
                self.out.reserve(zstd::zstd_safe::compress_bound(octets.len()));
                zstd.compress_to_buffer(octets, &mut self.out)?;
            }
            (Method::Gzip | Method::Zstd, _) => {
                let level = flate2::Compression::new(self.compression.level.unwrap_or(1) as u32);
                let mut encoder = flate2::write::GzEncoder::new(&mut self.out, level);
                encoder.write_all(octets)?;
                encoder.finish()?;
            }
            (Method::Lz4, _) => {
                // All frames use the same block size, because some readers expect that.
                let info = FrameInfo::new().block_size(BlockSize::Max256KB);
                let mut encoder = FrameEncoder::with_frame_info(info, &mut self.out);
                encoder.write_all(octets)?;
                encoder.finish().map_err(io::Error::other)?;
            }
        }
        Ok(&self.out)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn consecutive_blocks_are_one_file() {
        for text in ["zstd", "zstd:9", "gz", "gz:9", "lz4"] {
            let mut compressor = Compressor::new(text.parse().unwrap()).unwrap();
            let parts: [&[u8]; 3] = [&[7; 100_000], b"head", &[1, 2, 3]];
            let file: Vec<u8> =
                parts.iter().flat_map(|part| compressor.compress(part).unwrap().to_vec()).collect();
            let mut read = Vec::new();
            match compressor.compression.method {
                Method::Zstd => {
                    zstd::Decoder::new(&file[..]).unwrap().read_to_end(&mut read).unwrap();
                }
                Method::Gzip => drop(
                    flate2::read::MultiGzDecoder::new(&file[..]).read_to_end(&mut read).unwrap(),
                ),
                Method::Lz4 => {
                    let mut rest = &file[..];
                    while !rest.is_empty() {
                        lz4_flex::frame::FrameDecoder::new(&mut rest)
                            .read_to_end(&mut read)
                            .unwrap();
                    }
                }
            }
            assert_eq!(read, parts.concat(), "{text}");
            assert!(file.len() < 2_000, "{text}: {}", file.len());
        }
    }

    #[test]
    fn methods_are_parsed_with_their_level() {
        assert_eq!("gz:6".parse(), Ok(Compression { method: Method::Gzip, level: Some(6) }));
        assert_eq!(Method::of_name("a.pcapng.zst"), Some(Method::Zstd));
        assert_eq!(Method::of_name("a.pcapng"), None);
        for text in ["", "xz", "gz:10", "zstd:0", "lz4:2", "gz:x"] {
            assert!(text.parse::<Compression>().is_err(), "{text}");
        }
    }
}
