//! Decompresses captures while they are read.
//!
//! All data before an error is returned before the error is reported. Memory consists of an input
//! buffer, an output buffer and the format's window, which is bounded whatever size the file
//! requests.

use std::{
    fmt,
    io::{self, BufRead, BufReader, ErrorKind, Read},
};

use flate2::{Decompress, FlushDecompress};
use lz4_flex::frame::FrameDecoder;
use lzma_rust2::{Action, XzStream};
use zstd::stream::raw::{InBuffer, Operation, OutBuffer};

const CHUNK: usize = 64 << 10;
/// Maximum number of nested compression layers. `x.pcap.gz.xz` occurs, but there are also files
/// that decompress to themselves.
const MAX_LAYERS: usize = 4;
/// Memory limit of the xz decoder in KiB, enough for the 64 MiB window of `xz -9`.
const MAX_XZ: u32 = 66 << 10;
/// Maximum window, as a power of two: 2^27 octets, which `zstd --long` uses and zstd accepts by
/// default.
const MAX_ZSTD: u32 = 27;

/// Compression format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    Gzip,
    Zstd,
    Lz4,
    Xz,
    Bzip2,
}

impl Compression {
    /// Recognizes the format by the first octets, of which 6 are enough.
    pub fn of(octets: &[u8]) -> Option<Self> {
        const SKIPPABLE: std::ops::RangeInclusive<u8> = 0x50..=0x5f;
        match *octets {
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            // A skippable zstd frame, which pzstd and others write before each frame.
            [octet, 0x2a, 0x4d, 0x18, ..] if SKIPPABLE.contains(&octet) => Some(Self::Zstd),
            [0x04, 0x22, 0x4d, 0x18, ..] => Some(Self::Lz4),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some(Self::Bzip2),
            _ => None,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::Xz => "xz",
            Self::Bzip2 => "bzip2",
        })
    }
}

/// An error in compressed data. The `io::Error` of a read carries it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Damaged {
    pub by: Compression,
    pub reason: String,
    /// The data ends too early.
    pub cut: bool,
}

impl Damaged {
    fn error(self) -> io::Error {
        let kind = if self.cut { ErrorKind::UnexpectedEof } else { ErrorKind::InvalidData };
        io::Error::new(kind, self)
    }
}

/// A file, decompressed if necessary.
pub struct Source<R: Read> {
    /// The first octets, read to detect the format.
    head: [u8; 6],
    head_at: usize,
    head_len: usize,
    layer: Layer<R>,
}

enum Layer<R: Read> {
    Plain(R),
    Packed(Box<Packed<R>>),
    Lz4(Box<Lz4<R>>),
}

impl<R: Read> Source<R> {
    /// Detects the format from the beginning of `read`.
    pub fn new(read: R) -> io::Result<Self> {
        let mut source = Self::layer(Layer::Plain(read));
        for _ in 0..MAX_LAYERS {
            source.look()?;
            source = match Compression::of(&source.head[..source.head_len]) {
                None => return Ok(source),
                Some(Compression::Lz4) => Self::layer(Layer::Lz4(Box::new(Lz4::new(source)))),
                Some(by) => Self::layer(Layer::Packed(Box::new(Packed::new(source, by)?))),
            };
        }
        source.look()?;
        Ok(source)
    }

    /// The compression format of the file; if there are several layers, that of the innermost one.
    pub fn compression(&self) -> Option<Compression> {
        match &self.layer {
            Layer::Plain(_) => None,
            Layer::Packed(packed) => Some(packed.by),
            Layer::Lz4(_) => Some(Compression::Lz4),
        }
    }

    fn layer(layer: Layer<R>) -> Self {
        Self { head: [0; 6], head_at: 0, head_len: 0, layer }
    }

    fn look(&mut self) -> io::Result<()> {
        while self.head_len < self.head.len() {
            match self.layer.read(&mut self.head[self.head_len..]) {
                Ok(0) => break,
                Ok(n) => self.head_len += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The data before the error is examined first. The layer will report the error
                // again.
                Err(error) if self.head_len > 0 && is_damaged(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_damaged(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Damaged>())
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.head_at < self.head_len {
            let n = out.len().min(self.head_len - self.head_at);
            out[..n].copy_from_slice(&self.head[self.head_at..][..n]);
            self.head_at += n;
            return Ok(n);
        }
        self.layer.read(out)
    }
}

impl<R: Read> Layer<R> {
    #[inline]
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(read) => read.read(out),
            Self::Packed(packed) => packed.read(out),
            Self::Lz4(lz4) => lz4.read(out),
        }
    }
}

/// A codec that is fed piece by piece.
struct Packed<R: Read> {
    source: Source<R>,
    by: Compression,
    codec: Codec,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    /// `input` holds the rest of the source.
    at_end: bool,
    /// The decoder is between two members, where a file may end.
    between: bool,
    failed: Option<Damaged>,
}

enum Codec {
    Gzip(Decompress),
    Zstd(Zstd),
    Xz(Box<XzStream>),
    Bzip2(bzip2::Decompress),
}

struct Step {
    consumed: usize,
    produced: usize,
    /// Whether a member has ended. An error concerns the octets after the ones produced.
    ended: Result<bool, String>,
}

impl<R: Read> Packed<R> {
    fn new(source: Source<R>, by: Compression) -> io::Result<Self> {
        Ok(Self {
            source,
            by,
            codec: Codec::new(by)?,
            input: vec![0; CHUNK].into(),
            start: 0,
            end: 0,
            at_end: false,
            between: false,
            failed: None,
        })
    }

    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(damaged) = &self.failed {
                return Err(damaged.clone().error());
            }
            if self.start == self.end && !self.at_end {
                self.start = 0;
                self.end = self.source.read(&mut self.input)?;
                self.at_end = self.end == 0;
            }
            if self.between && !self.next_member()? {
                return Ok(0);
            }
            let Step { consumed, produced, ended } =
                self.codec.step(&self.input[self.start..self.end], out, self.at_end);
            self.start += consumed;
            match ended {
                Ok(ended) => self.between = ended,
                Err(reason) => self.fail(reason, false),
            }
            if produced > 0 {
                return Ok(produced);
            }
            if consumed == 0
                && !self.between
                && self.failed.is_none()
                && (self.at_end || self.start < self.end)
            {
                // No codec should refuse input that it could use. If one does, this prevents an
                // endless loop.
                let cut = self.at_end;
                self.fail(
                    if cut {
                        "the data has no end mark"
                    } else {
                        "the data cannot be decompressed"
                    }
                    .into(),
                    cut,
                );
            }
        }
    }

    /// Whether another member follows. Zeros, which may pad the last sector of a file, are skipped.
    fn next_member(&mut self) -> io::Result<bool> {
        loop {
            // The input buffer may end within a magic number.
            while self.end - self.start < 6 && !self.at_end {
                self.input.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
                let n = self.source.read(&mut self.input[self.end..])?;
                self.end += n;
                self.at_end = n == 0;
            }
            let rest = &self.input[self.start..self.end];
            if Compression::of(rest) == Some(self.by) {
                self.codec.again(self.by)?;
                self.between = false;
                return Ok(true);
            }
            let zeros = rest.iter().take_while(|&&octet| octet == 0).count();
            if rest.is_empty() {
                return Ok(false);
            }
            if zeros == 0 {
                let cut = rest.len() < 6;
                let damaged = Damaged {
                    by: self.by,
                    reason: format!("the octets after the data are not {}", self.by),
                    cut,
                };
                self.failed = Some(damaged.clone());
                return Err(damaged.error());
            }
            self.start += zeros;
        }
    }

    fn fail(&mut self, reason: String, cut: bool) {
        self.failed = Some(Damaged { by: self.by, reason, cut });
    }
}

impl Codec {
    fn new(by: Compression) -> io::Result<Self> {
        Ok(match by {
            Compression::Gzip => Self::Gzip(Decompress::new_gzip(15)),
            Compression::Zstd => Self::Zstd(Zstd::new()?),
            Compression::Xz => Self::Xz(Box::new(XzStream::new_mem_limit(false, MAX_XZ))),
            Compression::Bzip2 => Self::Bzip2(bzip2::Decompress::new(false)),
            Compression::Lz4 => unreachable!("has a layer of its own"),
        })
    }

    /// Resets the codec for another member.
    fn again(&mut self, by: Compression) -> io::Result<()> {
        match self {
            Self::Gzip(codec) => codec.reset(true),
            Self::Zstd(_) => {}
            Self::Xz(_) | Self::Bzip2(_) => *self = Self::new(by)?,
        }
        Ok(())
    }

    fn step(&mut self, input: &[u8], out: &mut [u8], at_end: bool) -> Step {
        match self {
            Self::Gzip(codec) => {
                let (consumed, produced) = (codec.total_in(), codec.total_out());
                let ended = match codec.decompress(input, out, FlushDecompress::None) {
                    Ok(status) => Ok(status == flate2::Status::StreamEnd),
                    Err(error) => Err(error.to_string()),
                };
                let (consumed, produced) =
                    (codec.total_in() - consumed, codec.total_out() - produced);
                Step { consumed: consumed as usize, produced: produced as usize, ended }
            }
            Self::Bzip2(codec) => {
                let (consumed, produced) = (codec.total_in(), codec.total_out());
                let ended = match codec.decompress(input, out) {
                    Ok(status) => Ok(status == bzip2::Status::StreamEnd),
                    Err(error) => Err(error.to_string()),
                };
                let (consumed, produced) =
                    (codec.total_in() - consumed, codec.total_out() - produced);
                Step { consumed: consumed as usize, produced: produced as usize, ended }
            }
            Self::Xz(codec) => {
                let (consumed, produced) = (codec.total_in(), codec.total_out());
                let action = if at_end { Action::Finish } else { Action::Run };
                match codec.process(input, out, action) {
                    Ok(done) => Step {
                        consumed: done.bytes_consumed,
                        produced: done.bytes_produced,
                        ended: Ok(done.status == lzma_rust2::Status::StreamEnd),
                    },
                    // Report the end of the data as such, not as an error of the codec.
                    Err(error) if at_end && error.kind() == ErrorKind::UnexpectedEof => {
                        Step { consumed: 0, produced: 0, ended: Ok(false) }
                    }
                    Err(error) => {
                        let (consumed, produced) =
                            (codec.total_in() - consumed, codec.total_out() - produced);
                        Step {
                            consumed: consumed as usize,
                            produced: produced as usize,
                            ended: Err(error.to_string()),
                        }
                    }
                }
            }
            Self::Zstd(codec) => codec.step(input, out),
        }
    }
}

/// The zstd library loses all output of a call that finds an error. So no call gets more than one
/// block, or any input while output of the last call is pending.
struct Zstd {
    codec: zstd::stream::raw::Decoder<'static>,
    /// Number of octets that zstd wants next: the rest of a block, and the header of the next one.
    hint: usize,
    /// The last output buffer was full, so more output may be pending.
    full: bool,
}

impl Zstd {
    /// Size of a block header.
    const HEADER: usize = 3;

    fn new() -> io::Result<Self> {
        let mut codec = zstd::stream::raw::Decoder::new()?;
        codec.set_parameter(zstd::stream::raw::DParameter::WindowLogMax(MAX_ZSTD))?;
        Ok(Self { codec, hint: Self::HEADER, full: false })
    }

    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Step {
        let want = match self.hint {
            _ if self.full => 0,
            hint if hint > Self::HEADER => hint - Self::HEADER,
            hint => hint.max(1),
        };
        let mut given = InBuffer::around(&input[..want.min(input.len())]);
        let mut taken = OutBuffer::around(out);
        let ended = match self.codec.run(&mut given, &mut taken) {
            Ok(hint) => {
                self.hint = hint;
                Ok(hint == 0)
            }
            Err(error) => Err(error.to_string()),
        };
        let (consumed, produced) = (given.pos(), taken.pos());
        // A call that only returned pending output does not show that the data has ended.
        let fetched = std::mem::replace(&mut self.full, produced == taken.capacity());
        if fetched && consumed == 0 && produced == 0 && !self.full && ended == Ok(false) {
            return self.step(input, out);
        }
        Step { consumed, produced, ended }
    }
}

/// A decoder that owns its reader, as the library requires. It ends with each frame.
struct Lz4<R: Read> {
    decoder: FrameDecoder<EndTracker<R>>,
    /// The decoder is between two frames, where a file may end.
    between: bool,
    failed: Option<Damaged>,
}

struct EndTracker<R: Read> {
    source: BufReader<Source<R>>,
    at_end: bool,
}

impl<R: Read> Lz4<R> {
    fn new(source: Source<R>) -> Self {
        let source = BufReader::with_capacity(CHUNK, source);
        Self {
            decoder: FrameDecoder::new(EndTracker { source, at_end: false }),
            between: true,
            failed: None,
        }
    }

    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(damaged) = &self.failed {
                return Err(damaged.clone().error());
            }
            if self.between && self.decoder.get_mut().source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            match self.decoder.read(out) {
                // The library reports the end of a frame in the same way as any end of file, so
                // determine which it is.
                Ok(0) if self.decoder.get_ref().at_end => {
                    self.fail("a frame without its end mark".into(), true)
                }
                Ok(0) => self.between = true,
                Ok(n) => {
                    self.between = false;
                    return Ok(n);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // An error of an inner layer, or a read error.
                Err(error) if is_damaged(&error) || error.raw_os_error().is_some() => {
                    return Err(error);
                }
                Err(error) => {
                    self.fail(error.to_string(), error.kind() == ErrorKind::UnexpectedEof)
                }
            }
        }
    }

    fn fail(&mut self, reason: String, cut: bool) {
        self.failed = Some(Damaged { by: Compression::Lz4, reason, cut });
    }
}

impl<R: Read> Read for EndTracker<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(out)?;
        self.at_end |= n == 0 && !out.is_empty();
        Ok(n)
    }
}
