//! The second executor of a [`Program`], besides `fill.rs`: compiles streams into one eBPF program
//! that makes their frames inside the kernel, one frame per run, at the times of their
//! [`Timeline`]s.
//!
//! Input: [`Stream`]s. Output: an [`Image`]: instructions, tables, and the [`Layout`] of the memory
//! that the program shares with its driver. The octets of frame k equal those of [`Program::fill`],
//! the departures those of the timeline, in the same integers. Streams that need more are
//! [`UnsupportedStream`], which names a port that can send them.
//!
//! The program runs over live frames ([`frame`](Image::frame) is their initial content) and
//! redirects the frame that it made to entry 0 of the device map. The [witnesses](Image::witnesses)
//! report whether a frame really left, which the redirect itself does not show.

mod accounts;
mod frame;
mod layout;
mod pace;

use std::fmt;

use squall_bpf::{Asm, MapId, MapKind, MapSpec, Object};
use squall_units::Picos;

use crate::{Gap, GapLaw, Pattern, Program, Timeline};

pub use layout::{Accounts, Clock, Layout, Memory};

/// Maximum number of streams in one program, because each departure compares all of them.
pub const MOST_STREAMS: usize = 64;
/// Longest frame in octets without FCS: a page minus its headroom, the kernel's metadata for a live
/// frame, and its tail.
pub const MOST_OCTETS: u32 = 3328;
/// Octets rewritten in each frame of a stream that owns its frames, because the previous receiver
/// of the page may have changed its headers.
const HEAD: usize = 128;
/// Maximum number of instructions: the range of an eBPF jump, which is a signed 16-bit offset.
const MOST_INSTRUCTIONS: usize = 30_000;

/// A stream, or a worker's share of it.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    pub name: &'a str,
    pub program: &'a Program,
    pub gap: Gap,
    pub law: &'a GapLaw,
    pub pattern: Pattern,
    /// Delay from the start of the run.
    pub start: Picos,
    /// Number of frames that former runs have sent: the first frame of this run.
    pub sent: u64,
    /// The first frame after `sent`, and the distance from one frame to the next.
    pub share: (u64, u64),
    /// Whether the stream starts by itself. If not, another's `next` starts it.
    pub self_start: bool,
    /// The stream (by index in the program) that starts when this one has ended, and how often
    /// (`None`: without limit).
    pub next: Option<(usize, Option<u64>)>,
}

impl Stream<'_> {
    /// The first frame of the share, counted from the first of all runs, and the distance from one
    /// frame to the next.
    fn first_and_step(&self) -> (u64, u64) {
        let (first, by) = self.share;
        (self.sent.wrapping_add(first), by)
    }
}

/// A program for the kernel with everything it needs.
#[derive(Clone, Debug)]
pub struct Image {
    pub object: Object,
    /// Raw tracepoints with their programs, which count the frames that the driver took. They share
    /// the maps of `object`.
    pub witnesses: Vec<(&'static str, Object)>,
    /// The number in `object` of the map that is the shared memory, and the map's initial words.
    pub memory: usize,
    pub words: Vec<u64>,
    /// The device map; entry 0 is the interface.
    pub exit: usize,
    /// The map of tables, and its only value.
    pub tables: (usize, Vec<u8>),
    /// The initial content of live frames.
    pub frame: Vec<u8>,
    pub layout: Layout,
}

/// A feature that the kernel's executor lacks, and the ports that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedStream {
    /// `None`: the feature concerns the streams as a whole.
    pub stream: Option<String>,
    pub why: String,
}

impl UnsupportedStream {
    pub fn new(stream: &str, why: impl Into<String>) -> Self {
        Self { stream: Some(stream.to_owned()), why: why.into() }
    }
}

impl fmt::Display for UnsupportedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(stream) = &self.stream {
            write!(f, "stream {stream:?}: ")?;
        }
        write!(
            f,
            "{} cannot be made inside the kernel\n  try an af_xdp or af_packet port",
            self.why
        )
    }
}

impl std::error::Error for UnsupportedStream {}

/// Numbers of the maps in an [`Object`].
const MEMORY: usize = 0;
const EXIT: usize = 1;
const TABLES: usize = 2;

#[derive(Clone, Copy, Debug)]
struct Maps {
    memory: MapId,
    exit: MapId,
    tables: MapId,
}

/// Compiles `streams`, at least one, into one program.
///
/// # Errors
/// [`UnsupportedStream`], for the first stream that cannot be compiled.
pub fn compile(streams: &[Stream<'_>]) -> Result<Image, UnsupportedStream> {
    if streams.len() > MOST_STREAMS {
        let why = format!("{} streams on one worker, more than {MOST_STREAMS},", streams.len());
        return Err(UnsupportedStream { stream: None, why });
    }
    let timelines = streams.iter().map(timeline).collect::<Result<Vec<_>, _>>()?;
    streams.iter().try_for_each(fits)?;
    let layout = Layout::new(streams);
    let mut tables = Tables::default();
    // The size is set afterward, because it is known only when the instructions have been
    // generated.
    let (object, ..) = assemble(streams, &layout, &mut tables)?;
    let mut object = object;
    object.maps[TABLES].value_octets = tables.0.len().max(8) as u32;
    tables.0.resize(object.maps[TABLES].value_octets as usize, 0);
    let witnesses = accounts::all(&layout, |a| maps(a, &layout, object.maps[TABLES].value_octets));
    let longest = streams.iter().max_by_key(|s| s.program.max_len());
    Ok(Image {
        words: layout.first_words(streams, &timelines),
        object,
        witnesses,
        memory: MEMORY,
        exit: EXIT,
        tables: (TABLES, tables.0),
        frame: longest.map(|s| s.program.template.to_vec()).unwrap_or_default(),
        layout,
    })
}

fn assemble(
    streams: &[Stream<'_>],
    layout: &Layout,
    tables: &mut Tables,
) -> Result<(Object, usize), UnsupportedStream> {
    let mut a = Asm::new("squall_live");
    let maps = maps(&mut a, layout, 8);
    pace::write(&mut a, maps, streams, layout, tables);
    let len = a.len();
    if len > MOST_INSTRUCTIONS {
        return Err(UnsupportedStream {
            stream: None,
            why: format!("a program of {len} instructions"),
        });
    }
    Ok((a.finish(), len))
}

fn maps(a: &mut Asm, layout: &Layout, tables: u32) -> Maps {
    let array = |name: &str, octets: u32, mmap| MapSpec {
        name: name.into(),
        kind: MapKind::Array,
        key_octets: 4,
        value_octets: octets,
        entries: 1,
        mmap,
    };
    let memory = a.map(array("squall_state", layout.words() as u32 * 8, true));
    let exit = MapSpec {
        name: "squall_exit".into(),
        kind: MapKind::DevMap,
        key_octets: 4,
        value_octets: 4,
        entries: 1,
        mmap: false,
    };
    let exit = a.map(exit);
    let tables = a.map(array("squall_tables", tables, false));
    Maps { memory, exit, tables }
}

/// The departures of a share.
fn timeline(s: &Stream<'_>) -> Result<Timeline, UnsupportedStream> {
    if *s.law != GapLaw::Constant {
        return Err(UnsupportedStream::new(s.name, "gaps that are not constant"));
    }
    let (first, by) = s.share;
    if by > 1 && (s.next.is_some() || !s.self_start) {
        return Err(UnsupportedStream::new(
            s.name,
            "one stream shared by several workers, which starts other streams,",
        ));
    }
    let gap = s.program.sizes().only().map_or(s.gap, |len| s.gap.fixed(len));
    let whole = Timeline::new(gap, s.law.clone(), s.pattern, 0, s.start);
    let whole = whole.after(s.pattern.in_round(s.sent));
    if by == 1 && first == 0 {
        return Ok(whole);
    }
    match gap {
        // All frames are due at once, so shares differ only in their number of frames.
        Gap::Zero if s.pattern.bursts == 1 => {
            let mut share = whole;
            share.set_left(s.pattern.packets.saturating_sub(first).div_ceil(by));
            Ok(share)
        }
        _ => whole.share(first, by).ok_or_else(|| {
            UnsupportedStream::new(
                s.name,
                "one stream shared by several workers, with bursts or with gaps that depend on \
                 lengths,",
            )
        }),
    }
}

fn fits(s: &Stream<'_>) -> Result<(), UnsupportedStream> {
    let longest = s.program.max_len();
    if longest > MOST_OCTETS {
        return Err(UnsupportedStream::new(
            s.name,
            format!("a frame of {longest} octets, more than the {MOST_OCTETS} of a memory page,"),
        ));
    }
    if !s.program.cut().is_whole() {
        return Err(UnsupportedStream::new(s.name, "GSO frames"));
    }
    if s.program.trex().is_some() {
        return Err(UnsupportedStream::new(s.name, "TRex's header (trex_hw_id)"));
    }
    frame::fits(s)
}

/// Constants that the program reads: values, cells, lengths, templates.
#[derive(Debug, Default)]
struct Tables(Vec<u8>);

impl Tables {
    /// Appends `octets`, aligned to 8, and returns their offset.
    fn add(&mut self, octets: &[u8]) -> u32 {
        let at = self.0.len();
        self.0.extend(octets);
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        at as u32
    }

    fn add_words(&mut self, words: impl IntoIterator<Item = u64>) -> u32 {
        let octets: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        self.add(&octets)
    }
}
