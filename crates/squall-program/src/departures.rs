//! Computes when frames are due: t0 + k·gap in integer arithmetic. Even frame 10^10 is exact,
//! because no rounding accumulates.

use std::{f64::consts::PI, sync::Arc};

use squall_units::{L1_OVERHEAD, Picos, mix};

use crate::{
    Shape,
    rng::{normal, unit},
};

/// The nominal gap after a frame, as an exact fraction of picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// No gap: as fast as the port accepts frames.
    Zero,
    /// `num / den` picoseconds per frame.
    PerFrame { num: u64, den: u64 },
    /// `num / den` picoseconds per octet of the frame plus `extra` (FCS; on layer 1 also preamble
    /// and interframe gap).
    PerOctet { num: u64, den: u64, extra: u32 },
}

/// How gaps vary around the nominal gap. Their mean is the nominal gap; a shape lengthens it.
#[derive(Clone, Debug, PartialEq)]
pub enum GapLaw {
    Constant,
    Exponential,
    /// Nominal gap times a factor in `1 - spread ..= 1 + spread`.
    Uniform {
        spread: f64,
    },
    /// `sd` is a fraction of the nominal gap; negative draws become 0.
    Normal {
        sd: f64,
    },
    Pareto {
        shape: f64,
    },
    Weibull {
        shape: f64,
    },
    Gamma {
        shape: f64,
    },
    /// Nominal gaps for the time `on`, then silence for the time `off`; both are above 0.
    OnOff {
        on: Picos,
        off: Picos,
    },
    /// Multiples of the nominal gap, repeated.
    List(Arc<[f64]>),
    /// Departures follow `law` at the full rate, and move to the times at which the same load has
    /// passed under `shape`, whose end ends them. Requires one burst with gaps.
    Shaped {
        law: Box<GapLaw>,
        shape: Shape,
    },
}

impl GapLaw {
    /// Fraction of time in which frames are due; below 1 if the law has silence.
    pub fn duty(&self) -> f64 {
        match self {
            Self::OnOff { on, off } => on.0 as f64 / (on.0 as f64 + off.0 as f64),
            Self::Shaped { law, .. } => law.duty(),
            _ => 1.0,
        }
    }

    /// The part of the first `span` in which frames are due, in picoseconds: on average `span`
    /// times the duty, and more before the first silence. Ignores a shape.
    pub fn active_within(&self, span: Picos) -> Picos {
        match self {
            Self::OnOff { on, off } => {
                let (on, span) = (on.0.max(1), span.0);
                let period = on.saturating_add(off.0);
                Picos((span / period) * on + (span % period).min(on))
            }
            Self::Shaped { law, .. } => law.active_within(span),
            _ => span,
        }
    }
}

/// Bursts: `bursts` times `packets` frames, with `gap` after each burst in addition to the frames'
/// own gap. Continuous sending is one burst of `u64::MAX` frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    pub bursts: u64,
    pub packets: u64,
    pub gap: Picos,
    /// Whether a burst ends when its last frame is due. If not, it ends one gap later.
    pub tight: bool,
}

impl Pattern {
    pub const CONTINUOUS: Self = Self { bursts: 1, packets: u64::MAX, gap: Picos(0), tight: false };

    /// Total number of frames; `None`: no limit.
    pub fn total(&self) -> Option<u64> {
        (self.packets != u64::MAX).then(|| self.packets.saturating_mul(self.bursts))
    }

    /// Number of frames after the last start of the pattern, out of `frames` frames in total: a
    /// chain of streams repeats its patterns.
    pub fn in_round(&self, frames: u64) -> u64 {
        self.total().filter(|total| *total > 0).map_or(frames, |total| frames % total)
    }
}

/// The state of a timeline, from which a different executor can continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// When the next frame is due: whole picoseconds, and a fraction whose denominator is that of
    /// the gap.
    pub due: u64,
    pub fraction: u64,
    /// Frames left in the burst, and bursts left including this one; `u64::MAX`: no limit.
    pub left: u64,
    pub bursts: u64,
}

/// The departures of one stream, in order.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// When the next frame is due: whole picoseconds, and the numerator of a fraction.
    due: u64,
    fraction: u64,
    /// Frames left in the burst; `u64::MAX`: no limit.
    left: u64,
    /// Constant gaps independent of the frame length: the common case, which avoids a division and
    /// a lookup.
    even: Even,
    rest: Box<Rest>,
}

/// A gap of `whole` and `rest / den` picoseconds; `den` 0: gaps are not even. An `Option` would
/// cost 8 octets more, and a timeline should fit one cache line because there may be thousands.
#[derive(Clone, Copy, Debug, Default)]
struct Even {
    whole: u64,
    rest: u64,
    den: u64,
}

#[derive(Clone, Debug)]
struct Rest {
    gap: Gap,
    law: GapLaw,
    pattern: Pattern,
    seed: u64,
    /// Index of the next gap.
    k: u64,
    bursts_left: u64,
    on_since: u64,
    bent: Option<Box<Bent>>,
}

/// The additional state of a shaped timeline.
#[derive(Clone, Debug)]
struct Bent {
    shape: Shape,
    /// When the next frame would be due at the full rate.
    load: u64,
    /// The start of the shape.
    origin: u64,
}

impl Gap {
    /// The gap for a rate of `num / den` frames per second.
    pub fn from_pps(num: u64, den: u64) -> Self {
        let (n, d) = reduced(u128::from(den) * 1_000_000_000_000, u128::from(num));
        Self::PerFrame { num: n, den: d }
    }

    /// The gap for a rate of `num / den` bits per second. Counts the FCS, and on layer 1 also
    /// preamble and interframe gap.
    pub fn from_bps(num: u64, den: u64, layer1: bool) -> Self {
        let (n, d) = nearest(u128::from(den) * 8_000_000_000_000, u128::from(num));
        Self::PerOctet { num: n, den: d, extra: 4 + if layer1 { L1_OVERHEAD } else { 0 } }
    }

    /// The gap after a frame of `len` octets without FCS, as a fraction of picoseconds.
    #[inline]
    fn gap_after(self, len: u32) -> (u64, u64) {
        match self {
            Self::Zero => (0, 1),
            Self::PerFrame { num, den } => (num, den),
            Self::PerOctet { num, den, extra } => (num * u64::from(len + extra), den),
        }
    }

    /// The gap if all frames have length `len`: a fraction computed once instead of a division per
    /// frame.
    pub fn fixed(self, len: u32) -> Self {
        let (num, den) = match self {
            Self::Zero => return self,
            Self::PerFrame { num, den } => (num, den),
            Self::PerOctet { num, den, extra } => match num.checked_mul(u64::from(len + extra)) {
                Some(num) => (num, den),
                // Very short GSO segments overflow 64 bits.
                None => reduced(u128::from(num) * u128::from(len + extra), den.into()),
            },
        };
        Self::PerFrame { num, den }
    }

    /// The gap for one of `by` workers that share a stream: `by` times this one, if it does not
    /// depend on the frames in between. Rounded to 64 bits, with an error below 2^-40 of the value.
    pub fn times(self, by: u64) -> Self {
        match self {
            Self::PerFrame { num, den } => {
                let fits = num.checked_mul(by).filter(|num| num >> 62 == 0).map(|num| (num, den));
                let (num, den) =
                    fits.unwrap_or_else(|| reduced(u128::from(num) * u128::from(by), den.into()));
                Self::PerFrame { num, den }
            }
            gap => gap,
        }
    }

    /// The gap after a frame of `len` octets without FCS, in seconds.
    pub fn seconds(self, len: f64) -> f64 {
        match self {
            Self::Zero => 0.0,
            Self::PerFrame { num, den } => num as f64 / den as f64 / 1e12,
            Self::PerOctet { num, den, extra } => {
                num as f64 / den as f64 / 1e12 * (len + f64::from(extra))
            }
        }
    }
}

/// `n / d` approximated by a continued fraction, small enough for multiplication by a frame's
/// octets in 64 bits: the error is below 2^-46 of the value.
fn nearest(n: u128, d: u128) -> (u64, u64) {
    const MOST: u128 = 1 << 47;
    // A gap above 2^47 picoseconds per octet needs no fraction.
    convergent(n, d, MOST, MOST)
}

/// `n / d` in lowest terms that fit 64 bits, with an error below 2^-40 of the value.
fn reduced(n: u128, d: u128) -> (u64, u64) {
    convergent(n, d, 1 << 62, 1 << 40)
}

/// The last convergent of `n / d` whose numerator and denominator are within these limits.
fn convergent(mut n: u128, mut d: u128, most_n: u128, most_d: u128) -> (u64, u64) {
    let ((mut p, mut q), mut before) = ((1, 0), (0, 1));
    while d != 0 {
        let whole = n / d;
        let (next_p, next_q) = (whole.min(most_n) * p + before.0, whole.min(most_d) * q + before.1);
        if q != 0 && (next_p > most_n || next_q > most_d) {
            break;
        }
        (before, p, q) = ((p, q), next_p, next_q);
        (n, d) = (d, n % d);
    }
    if p == 0 { (1, most_d as u64) } else { (p as u64, q.max(1) as u64) }
}

impl Timeline {
    /// Creates a timeline whose first frame is due at `start`. `seed` seeds random laws.
    pub fn new(gap: Gap, law: GapLaw, pattern: Pattern, seed: u64, start: Picos) -> Self {
        let (law, bent) = match law {
            GapLaw::Shaped { law, shape } => {
                (*law, Some(Box::new(Bent { shape, load: 0, origin: start.0 })))
            }
            law => (law, None),
        };
        // Within a shape, time counts from the shape's start.
        let on_since = if bent.is_some() { 0 } else { start.0 };
        let bursts_left = pattern.bursts;
        let rest = Rest { gap, law, pattern, seed, k: 0, bursts_left, on_since, bent };
        let even = rest.even();
        let mut line =
            Self { due: start.0, fraction: 0, left: pattern.packets, even, rest: Box::new(rest) };
        line.under_full_rate(|_| {});
        line
    }

    /// Applies `then` to a shaped timeline at its full rate, then moves the next frame to its time
    /// under the shape. Leaves other timelines unchanged. Returns whether the timeline is shaped.
    fn under_full_rate(&mut self, then: impl FnOnce(&mut Self)) -> bool {
        let Some(mut bent) = self.rest.bent.take() else { return false };
        self.due = bent.load;
        then(self);
        bent.load = self.due;
        let at = bent.shape.instant(Picos(bent.load)).unwrap_or_else(|| {
            (self.left, self.rest.bursts_left) = (0, 0);
            bent.shape.end().map_or(Picos(u64::MAX), Picos::from)
        });
        self.due = bent.origin.saturating_add(at.0);
        self.rest.bent = Some(bent);
        true
    }

    /// Leaves out the first `frames` frames, which a former run has sent: the next one is due now,
    /// or one gap between bursts later if it begins a burst. Random gaps are those of the frames
    /// that are left. `on` times and stages start from the beginning.
    #[must_use]
    pub fn after(mut self, frames: u64) -> Self {
        let rest = &mut *self.rest;
        rest.k = frames;
        if rest.pattern.packets == u64::MAX || frames == 0 || self.left == 0 {
            return self;
        }
        let (bursts, into) = (frames / rest.pattern.packets, frames % rest.pattern.packets);
        if rest.bursts_left != u64::MAX {
            rest.bursts_left = rest.bursts_left.saturating_sub(bursts);
        }
        self.left = if rest.bursts_left == 0 { 0 } else { rest.pattern.packets - into };
        if into == 0 && self.left != 0 {
            self.due = self.due.saturating_add(rest.pattern.gap.0);
        }
        self
    }

    /// The share of one of `by` workers in a single burst: frames `first`, `first + by`, ...
    /// `None`: gaps depend on the frames in between, so the worker must step through them.
    pub fn share(mut self, first: u64, by: u64) -> Option<Self> {
        if self.rest.law != GapLaw::Constant || self.rest.pattern.bursts != 1 {
            return None;
        }
        match self.rest.gap {
            // Without gaps, whichever worker is ready sends next.
            Gap::Zero => {}
            Gap::PerFrame { num, den } if num.checked_mul(by)? >> 62 == 0 => {
                let before = |line: &mut Self| (0..first).for_each(|_| line.add(num, den));
                if !self.under_full_rate(before) {
                    before(&mut self);
                }
                self.set(Gap::PerFrame { num: num * by, den });
            }
            _ => return None,
        }
        if self.left != u64::MAX {
            self.left = self.left.saturating_sub(first).div_ceil(by);
        }
        Some(self)
    }

    /// Number of frames due before `end`, at most `most`: the frames left unsent when time is up.
    /// `len` returns the octets without FCS of frame 0, 1, ... from here.
    pub fn due_before(&self, end: Picos, len: impl Fn(u64) -> u32, most: u64) -> u64 {
        let mut rest = self.clone();
        let mut count = 0u64;
        while count < most && rest.due().is_some_and(|due| due < end) {
            count = count.saturating_add(rest.skip_before(end).unwrap_or_else(|| {
                rest.advance(len(count));
                1
            }));
        }
        count
    }

    /// Skips the frames of this burst that are due before `end`. Returns their number; `None`: gaps
    /// are not even, so the caller must step frame by frame.
    pub fn skip_before(&mut self, end: Picos) -> Option<u64> {
        let Even { whole, rest, den } = self.even;
        if den == 0 {
            return None;
        }
        let (den, gap) = (u128::from(den), u128::from(whole) * u128::from(den) + u128::from(rest));
        let span = (u128::from(end.0.saturating_sub(self.due)) * den)
            .saturating_sub(u128::from(self.fraction));
        let n = u64::try_from(span.div_ceil(gap.max(1))).unwrap_or(u64::MAX).min(self.left);
        let advanced = u128::from(n) * gap + u128::from(self.fraction);
        let of_last = advanced.saturating_sub(gap) / den;
        let last = self.due.saturating_add(u64::try_from(of_last).unwrap_or(u64::MAX));
        self.due = self.due.saturating_add(u64::try_from(advanced / den).unwrap_or(u64::MAX));
        self.fraction = (advanced % den) as u64;
        if self.left != u64::MAX {
            self.left -= n;
            if self.left == 0 {
                self.next_burst(last);
            }
        }
        Some(n)
    }

    /// When the next frame is due; `None`: no frame is left, and [`Timeline::end`] is the end of
    /// the stream.
    #[inline]
    pub fn due(&self) -> Option<Picos> {
        (self.left != 0).then_some(Picos(self.due))
    }

    /// One gap after the last frame, or the last frame's own due time if the pattern is tight.
    #[inline]
    pub fn end(&self) -> Picos {
        Picos(self.due)
    }

    /// Whether frames are due as soon as the port takes them.
    #[inline]
    pub fn is_unpaced(&self) -> bool {
        self.even.den == 0 && self.rest.gap == Gap::Zero
    }

    /// Whether no law varies or interrupts the gaps.
    #[inline]
    pub fn is_steady(&self) -> bool {
        self.rest.law == GapLaw::Constant && self.rest.bent.is_none()
    }

    /// Takes consecutive frames of one length that are due before `bound` (the first in any case),
    /// as many as `out` has room for; `each` gets an entry of `out` and the due time. Returns their
    /// number and the last due time. Time must not overflow meanwhile. `None`: gaps are not even,
    /// so the caller must step frame by frame.
    #[inline]
    pub fn run<T>(
        &mut self,
        bound: u64,
        out: &mut [T],
        mut each: impl FnMut(&mut T, u64),
    ) -> Option<(usize, u64)> {
        let Even { whole, rest, den } = self.even;
        if den == 0 {
            return None;
        }
        let most = out.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let (mut due, mut last, mut n) = (self.due, self.due, 0);
        if rest == 0 {
            n = self.before(bound, most);
            for o in &mut out[..n] {
                last = due;
                each(o, due);
                due += whole;
            }
        } else {
            let mut fraction = self.fraction;
            for o in &mut out[..most] {
                last = due;
                each(o, due);
                n += 1;
                due += whole;
                fraction += rest;
                let carry = fraction >= den;
                fraction -= if carry { den } else { 0 };
                due += u64::from(carry);
                if due >= bound {
                    break;
                }
            }
            self.fraction = fraction;
        }
        self.due = due;
        self.took(n, last);
        Some((n, last))
    }

    /// As [`Timeline::run`] for up to `most` frames, without the due times in between. If the
    /// frames are long overdue or gaps are whole picoseconds, the cost does not grow with their
    /// number.
    #[inline]
    pub fn run_at_once(&mut self, bound: u64, most: usize) -> Option<(usize, u64)> {
        let Even { whole, rest, den } = self.even;
        // The products below would otherwise overflow: they have room for 255 frames.
        if den == 0 || den >> 56 != 0 {
            return None;
        }
        let most = most.min(255).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let n = self.before(bound, most);
        let mut last = self.due;
        if n == 1 {
            self.add_parts(whole, rest, den);
        } else if n > 1 {
            let sum = self.fraction + rest * n as u64;
            let carries = if rest == 0 { 0 } else { sum / den };
            self.fraction = sum - carries * den;
            self.due += whole * n as u64 + carries;
            // The fraction is less than the increment of one gap only if the last gap carried.
            last = self.due - whole - u64::from(self.fraction < rest);
        }
        self.took(n, last);
        Some((n, last))
    }

    /// Counts `n` frames of the burst, the last of them due at `last`.
    #[inline]
    fn took(&mut self, n: usize, last: u64) {
        if self.left != u64::MAX {
            self.left -= n as u64;
            if self.left == 0 {
                self.next_burst(last);
            }
        }
    }

    /// With even gaps: how many of the next `most` frames are due before `bound`, including the
    /// first one in any case.
    #[inline]
    fn before(&self, bound: u64, most: usize) -> usize {
        let Even { whole, rest, den } = self.even;
        // Avoids the division if all frames are long overdue, or if the caller takes one frame at a
        // time.
        if most <= 1 || self.due.saturating_add(whole) >= bound {
            return most.min(1);
        }
        let longest = whole.saturating_add(u64::from(rest > 0));
        if self.due.saturating_add(longest.saturating_mul(most as u64 - 1)) < bound {
            return most;
        }
        if rest == 0 {
            return (1 + (bound - 1 - self.due) / whole) as usize;
        }
        let (mut due, mut fraction) = (self.due, self.fraction);
        for n in 1..most {
            fraction += rest;
            let carry = fraction >= den;
            fraction -= if carry { den } else { 0 };
            due += whole + u64::from(carry);
            if due >= bound {
                return n;
            }
        }
        most
    }

    /// Takes up to `most` frames at `now` from a stream without gaps, at most as many as the burst
    /// has left. Returns the number taken. The timeline must be steady ([`Timeline::is_steady`]).
    #[inline]
    pub fn run_unpaced(&mut self, now: Picos, most: usize) -> usize {
        self.due = now.0;
        let n = most.min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if self.left != u64::MAX {
            self.left -= n as u64;
            if self.left == 0 {
                self.next_burst(now.0);
            }
        }
        n
    }

    /// Advances past the frame that was due, which had `len` octets without FCS.
    #[inline]
    pub fn advance(&mut self, len: u32) {
        let last = self.due;
        if self.even.den != 0 {
            let Even { whole, rest, den } = self.even;
            self.add_parts(whole, rest, den);
        } else {
            let (num, den) = self.rest.gap.gap_after(len);
            if !self.under_full_rate(|line| line.add_by_law(num, den)) {
                self.add_by_law(num, den);
            }
            // The shape has ended.
            if self.left == 0 {
                return;
            }
        }
        self.left = self.left.wrapping_sub(u64::from(self.left != u64::MAX));
        if self.left == 0 {
            self.next_burst(last);
        }
    }

    fn add_by_law(&mut self, num: u64, den: u64) {
        if self.rest.law == GapLaw::Constant {
            self.add(num, den);
        } else {
            self.advance_by_law(num, den);
        }
    }

    #[inline]
    fn add(&mut self, num: u64, den: u64) {
        let (whole, rest) = if den == 1 { (num, 0) } else { (num / den, num % den) };
        self.add_parts(whole, rest, den);
    }

    /// Adds a gap; saturates at the largest time.
    #[inline]
    fn add_parts(&mut self, whole: u64, rest: u64, den: u64) {
        self.due = self.due.saturating_add(whole);
        self.fraction += rest;
        if self.fraction >= den {
            self.fraction -= den;
            self.due = self.due.saturating_add(1);
        }
    }

    /// Ends the burst whose last frame was due at `last`.
    fn next_burst(&mut self, last: u64) {
        let rest = &mut *self.rest;
        if rest.pattern.tight && rest.bent.is_none() {
            (self.due, self.fraction) = (last, 0);
        }
        rest.bursts_left = rest.bursts_left.wrapping_sub(u64::from(rest.bursts_left != u64::MAX));
        if rest.bursts_left != 0 {
            self.left = rest.pattern.packets;
            // Saturates, because the largest time (213 days) means never.
            self.due = self.due.saturating_add(rest.pattern.gap.0);
        }
    }

    fn advance_by_law(&mut self, num: u64, den: u64) {
        let nominal = num as f64 / den as f64;
        let (seed, k) = (self.rest.seed, self.rest.k);
        let u = || unit(mix(seed, k));
        let factor = match &self.rest.law {
            GapLaw::Constant => 1.0,
            GapLaw::OnOff { on, off } => {
                let (on, off) = (on.0.max(1), off.0);
                self.add(num, den);
                let period = on.saturating_add(off);
                let since = self.due.saturating_sub(self.rest.on_since);
                if num == 0 {
                    // Without gaps, the `on` time passes whether or not the port takes frames.
                    let into = since % period;
                    self.due = self.due.saturating_add(if into < on { 0 } else { period - into });
                    self.rest.on_since = if into < on { self.due - into } else { self.due };
                } else {
                    // A gap may be longer than several `on` times.
                    let times = since / on;
                    self.due = self.due.saturating_add(off.saturating_mul(times));
                    self.rest.on_since =
                        self.rest.on_since.saturating_add(period.saturating_mul(times));
                }
                return;
            }
            GapLaw::Exponential => -u().ln(),
            GapLaw::Uniform { spread } => 1.0 + spread * (2.0 * u() - 1.0),
            GapLaw::Normal { sd } => (1.0 + sd * normal(seed, k)).max(0.0),
            // The scale (shape - 1) / shape gives a mean of 1.
            GapLaw::Pareto { shape } => (shape - 1.0) / shape * u().powf(-1.0 / shape),
            GapLaw::Weibull { shape } => (-u().ln()).powf(1.0 / shape) / gamma(1.0 + 1.0 / shape),
            GapLaw::Gamma { shape } => gamma_draw(*shape, seed, k) / shape,
            GapLaw::List(gaps) => gaps[(k % gaps.len() as u64) as usize],
            GapLaw::Shaped { .. } => unreachable!("a timeline takes it apart"),
        };
        self.rest.k += 1;
        self.due = self.due.saturating_add((nominal * factor).round() as u64);
    }

    /// Changes the rate from the next gap on.
    pub fn set_gap(&mut self, gap: Gap) {
        self.set(gap);
        // With the denominator of the new gap, the old numerator would be another time.
        self.fraction = 0;
    }

    fn set(&mut self, gap: Gap) {
        self.rest.gap = gap;
        self.even = self.rest.even();
    }

    /// Delays the remaining departures by `by` (after a pause or a stretch).
    pub fn shift(&mut self, by: Picos) {
        self.due = self.due.saturating_add(by.0);
        match &mut self.rest.bent {
            Some(bent) => bent.origin = bent.origin.saturating_add(by.0),
            None => self.rest.on_since = self.rest.on_since.saturating_add(by.0),
        }
    }

    /// Moves the next frame to `due`, which also starts an `on` time.
    pub fn restart(&mut self, due: Picos) {
        (self.due, self.fraction, self.rest.on_since) = (due.0, 0, due.0);
    }

    /// Moves the next frame to `due`: a stream without gaps follows the port.
    pub fn set_due(&mut self, due: Picos) {
        self.due = due.0;
    }

    /// Sets the frames left in the current burst, if it has a limit.
    pub fn set_left(&mut self, left: u64) {
        if self.left != u64::MAX {
            self.left = left;
        }
    }

    /// Frames left in the current burst.
    pub fn left_in_burst(&self) -> u64 {
        self.left
    }

    pub fn standing(&self) -> Standing {
        Standing {
            due: self.due,
            fraction: self.fraction,
            left: self.left,
            bursts: self.rest.bursts_left,
        }
    }

    /// Continues from the state of a different executor.
    pub fn stand(&mut self, at: Standing) {
        (self.due, self.fraction, self.left, self.rest.bursts_left) =
            (at.due, at.fraction, at.left, at.bursts);
    }
}

impl Rest {
    fn even(&self) -> Even {
        match (self.gap, &self.law, &self.bent) {
            (Gap::PerFrame { num, den }, GapLaw::Constant, None) => {
                Even { whole: num / den, rest: num % den, den }
            }
            _ => Even::default(),
        }
    }
}

/// Lanczos' approximation with g = 7: relative error below 1e-13 for x above 0.5.
fn gamma(x: f64) -> f64 {
    const C: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        return PI / ((PI * x).sin() * gamma(1.0 - x));
    }
    let x = x - 1.0;
    let t = x + 7.5;
    let series = C.iter().enumerate().skip(1).fold(C[0], |sum, (i, c)| sum + c / (x + i as f64));
    (2.0 * PI).sqrt() * t.powf(x + 0.5) * (-t).exp() * series
}

/// A gamma draw of scale 1 (Marsaglia and Tsang 2000). Each attempt has its own random numbers,
/// because frame `k` must not depend on the frames before it.
fn gamma_draw(shape: f64, seed: u64, k: u64) -> f64 {
    if shape < 1.0 {
        return gamma_draw(shape + 1.0, seed, k) * unit(mix(!seed, k)).powf(1.0 / shape);
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    for attempt in 0.. {
        let seed = mix(seed, attempt);
        let x = normal(seed, k);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && unit(mix(!seed, k)).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
    unreachable!("every try is accepted with a chance above 0.9")
}

#[cfg(test)]
mod tests {
    use squall_units::Nanos;

    use super::*;
    use crate::Stage;

    fn shaped(law: GapLaw) -> GapLaw {
        let stage = |ms: u64, to| Stage { lasts: Nanos(ms * 1_000_000), to };
        // Up to the full rate in 1 s, steady for 1 s, half for 1 s, none for 1 s, full for 1 s.
        let stages = [
            stage(1000, 10),
            stage(1000, 10),
            stage(0, 5),
            stage(1000, 5),
            stage(0, 0),
            stage(1000, 0),
            stage(0, 10),
            stage(1000, 10),
        ];
        GapLaw::Shaped { law: Box::new(law), shape: Shape::new(&stages, 10).unwrap() }
    }

    #[test]
    fn a_gap_of_a_rate_with_a_long_fraction_is_as_long_as_it_says() {
        // A sixth of a frame per second, to twelve digits.
        let Gap::PerFrame { num, den } = Gap::from_pps(166_666_666_667, 1_000_000_000_000) else {
            panic!("frames a second have a gap for each frame")
        };
        let picos = num as f64 / den as f64;
        assert!((picos - 1e24 / 166_666_666_667.0).abs() < 0.01, "{num}/{den}");
    }

    #[test]
    fn stages_put_frames_where_as_much_has_passed() {
        let mut t = Timeline::new(
            Gap::from_pps(1000, 1),
            shaped(GapLaw::Constant),
            Pattern::CONTINUOUS,
            0,
            Picos(7),
        );
        let mut dues = Vec::new();
        while let Some(due) = t.due() {
            dues.push((due.0 - 7) / 1_000_000);
            t.advance(60);
        }
        let within = |from: u64, to: u64| {
            dues.iter().filter(|us| (from * 1000..to * 1000).contains(*us)).count()
        };
        let counts = [(0, 1000), (1000, 2000), (2000, 3000), (3000, 4000), (4000, 5000)];
        assert_eq!(counts.map(|(from, to)| within(from, to)), [500, 1000, 500, 0, 1000]);
        assert_eq!((dues[0], dues[125], dues[500], dues[1500]), (0, 500_000, 1_000_000, 2_000_000));
        assert_eq!(t.end(), Picos(5_000_000_000_000 + 7));
    }

    #[test]
    fn workers_share_stages_and_a_pause_moves_them() {
        for law in [GapLaw::Constant, GapLaw::Exponential] {
            let mut whole = Timeline::new(
                Gap::from_pps(777, 2),
                shaped(law.clone()),
                Pattern { bursts: 1, packets: 900, gap: Picos(0), tight: false },
                5,
                Picos(3),
            );
            let mut shares: Vec<_> =
                (0..3).filter_map(|first| whole.clone().share(first, 3)).collect();
            assert_eq!(shares.len(), if law == GapLaw::Constant { 3 } else { 0 });
            let mut k = 0;
            while let Some(due) = whole.due() {
                if !shares.is_empty() {
                    assert_eq!(shares[k % 3].due(), Some(due), "{k}");
                    shares[k % 3].advance(60);
                }
                let mut moved = whole.clone();
                moved.shift(Picos(500));
                assert_eq!(moved.due(), Some(Picos(due.0 + 500)));
                moved.advance(60);
                whole.advance(60);
                assert_eq!(moved.end(), Picos(whole.end().0 + 500));
                k += 1;
            }
            assert!((850..=900).contains(&k), "{law:?}: {k}");
            assert!(shares.iter().all(|share| share.due().is_none()));
        }
    }

    fn line(gap: Gap, law: GapLaw) -> Timeline {
        Timeline::new(gap, law, Pattern::CONTINUOUS, 42, Picos(0))
    }

    #[test]
    fn ten_thousand_million_frames_later_nothing_has_drifted() {
        // 3 frames/s: a third of a second is not a whole number of picoseconds.
        let mut t = line(Gap::from_pps(3, 1), GapLaw::Constant);
        for k in 0..30_000u64 {
            assert_eq!(t.due().map(|d| d.0), Some((u128::from(k) * 1_000_000_000_000 / 3) as u64));
            t.advance(60);
        }
        // The step does not depend on the time: frame 3n is due at n seconds, whatever n.
        t.due = 3_000_000_000_000_000_000;
        t.fraction = 0;
        (0..3).for_each(|_| t.advance(60));
        assert_eq!(t.due, 3_000_001_000_000_000_000);
    }

    #[test]
    fn a_run_of_frames_is_due_as_they_are_one_by_one() {
        for gap in [Gap::from_pps(1_000_000, 1), Gap::from_pps(3_000_000, 1), Gap::from_pps(7, 3)] {
            let whole = (gap.seconds(0.0) * 1e12) as u64;
            let mut one = Timeline::new(
                gap,
                GapLaw::Constant,
                Pattern { packets: 500, ..Pattern::CONTINUOUS },
                1,
                Picos(5),
            );
            let mut all = one.clone();
            for k in 0.. {
                let Some(now) = one.due() else { break };
                // Bounds before, at and after a frame, and far away.
                let bound = now.0
                    + [0, 1, whole, 3 * whole, 3 * whole + 1, 3 * whole + 2, u64::MAX / 4][k % 7];
                let (mut out, mut at_once) = ([0; 64], all.clone());
                let (n, last) = all
                    .run(bound, &mut out[..1 + k * 5 % 64], |o, due| *o = due)
                    .expect("gaps are even");
                for (j, due) in out[..n].iter().enumerate() {
                    assert_eq!(one.due(), Some(Picos(*due)), "{gap:?} {k} {j}");
                    assert!(j == 0 || *due < bound);
                    one.advance(60);
                }
                assert_eq!(last, out[n - 1]);
                assert!(
                    n == 1 + k * 5 % 64 || one.due().is_none_or(|due| due.0 >= bound),
                    "{gap:?} {k}: {n}"
                );
                assert_eq!((one.due(), one.end()), (all.due(), all.end()));
                assert_eq!(at_once.run_at_once(bound, 1 + k * 5 % 64), Some((n, last)));
                let state = |line: &Timeline| (line.due(), line.fraction, line.end());
                assert_eq!(state(&at_once), state(&all), "{gap:?} {k}");
            }
            assert!(all.due().is_none());
        }
    }

    #[test]
    fn a_bit_rate_counts_the_octets_of_its_layer() {
        // 64-octet frames (60 without FCS) at 10 Gb/s on layer 1: 14.88 Mpps, 67.2 ns apart.
        let mut t = line(Gap::from_bps(10_000_000_000, 1, true), GapLaw::Constant);
        t.advance(60);
        assert_eq!(t.due, 67_200);
        let mut t = line(Gap::from_bps(10_000_000_000, 1, false), GapLaw::Constant);
        t.advance(60);
        assert_eq!(t.due, 51_200);
    }

    #[test]
    fn tight_bursts_are_spaced_from_their_last_frames() {
        let pattern = Pattern { bursts: 2, packets: 3, gap: Picos(1_000), tight: true };
        let gap = Gap::PerFrame { num: 700, den: 3 };
        let new = || Timeline::new(gap, GapLaw::Constant, pattern, 0, Picos(50));
        let (mut line, mut dues) = (new(), Vec::new());
        while let Some(due) = line.due() {
            dues.push(due.0);
            line.advance(60);
        }
        assert_eq!(dues, [50, 283, 516, 1516, 1749, 1982]);
        assert_eq!(line.end(), Picos(1982));
        let (mut line, mut ran, mut out) = (new(), Vec::new(), [0; 8]);
        while line.due().is_some() {
            let (n, _) = line.run(u64::MAX, &mut out, |to, due| *to = due).expect("even gaps");
            ran.extend_from_slice(&out[..n]);
        }
        assert_eq!(ran, dues);
        let mut line = new();
        line.skip_before(Picos(u64::MAX / 2));
        assert_eq!(line.due(), Some(Picos(1516)));
    }

    #[test]
    fn bursts_are_spaced_by_their_gap_and_end() {
        let pattern = Pattern { bursts: 2, packets: 3, gap: Picos(1_000), tight: false };
        let mut t = Timeline::new(
            Gap::PerFrame { num: 10, den: 1 },
            GapLaw::Constant,
            pattern,
            0,
            Picos(5),
        );
        let mut dues = Vec::new();
        while let Some(due) = t.due() {
            dues.push(due.0);
            t.advance(60);
        }
        assert_eq!(dues, [5, 15, 25, 1035, 1045, 1055]);
        assert_eq!(t.end(), Picos(1065));
    }

    #[test]
    fn a_timeline_continues_within_a_burst_and_after_its_gap() {
        let pattern = Pattern { bursts: 3, packets: 4, gap: Picos(1_000), tight: false };
        for law in [GapLaw::Constant, GapLaw::Exponential] {
            let whole = Timeline::new(Gap::from_pps(7_000_000, 3), law, pattern, 5, Picos(11));
            for sent in 0..12 {
                let mut walked = whole.clone();
                (0..sent).for_each(|_| walked.advance(60));
                let mut rest = whole.clone().after(sent);
                let begins_burst = sent > 0 && sent % 4 == 0;
                let begin = if begins_burst { 1_011 } else { 11 };
                assert_eq!(rest.due(), Some(Picos(begin)), "after {sent}");
                while let (Some(a), Some(b)) = (walked.due(), rest.due()) {
                    walked.advance(60);
                    rest.advance(60);
                    let [a, b] = [walked.end().0 - a.0, rest.end().0 - b.0];
                    assert!(a.abs_diff(b) <= 1, "after {sent}: gaps of {a} and {b}");
                }
                assert_eq!((walked.due(), rest.due()), (None, None), "after {sent}");
            }
        }
        assert_eq!((pattern.in_round(12), pattern.in_round(31)), (0, 7));
        assert_eq!(Pattern::CONTINUOUS.in_round(31), 31);
    }

    #[test]
    fn every_law_keeps_the_mean() {
        for law in [
            GapLaw::Exponential,
            GapLaw::Uniform { spread: 0.5 },
            GapLaw::Normal { sd: 0.2 },
            GapLaw::Pareto { shape: 3.0 },
            GapLaw::Weibull { shape: 0.8 },
            GapLaw::Weibull { shape: 2.0 },
            GapLaw::Gamma { shape: 0.5 },
            GapLaw::Gamma { shape: 4.0 },
            GapLaw::List([0.5, 1.5].into()),
        ] {
            let mut t = line(Gap::from_pps(1_000_000, 1), law.clone());
            let n = 400_000u64;
            (0..n).for_each(|_| t.advance(60));
            let mean = t.due as f64 / n as f64;
            assert!((mean / 1e6 - 1.0).abs() < 0.01, "{law:?}: {mean} ps");
        }
    }

    #[test]
    fn the_shares_of_workers_make_up_the_whole() {
        let pattern = Pattern { bursts: 1, packets: 1000, gap: Picos(0), tight: false };
        let whole =
            Timeline::new(Gap::from_pps(7_000_000, 3), GapLaw::Constant, pattern, 0, Picos(11));
        let dues = |mut t: Timeline| {
            std::iter::from_fn(move || {
                let due = t.due()?;
                t.advance(60);
                Some(due)
            })
        };
        let mut shared: Vec<Picos> =
            (0..3).flat_map(|w| dues(whole.clone().share(w, 3).unwrap())).collect();
        shared.sort();
        assert_eq!(shared, dues(whole.clone()).collect::<Vec<_>>());
        assert_eq!(whole.due_before(shared[10], |_| 60, 99), 10);
        assert_eq!(whole.due_before(Picos(u64::MAX), |_| 60, 9), 1000);
    }

    #[test]
    fn the_gap_of_a_share_is_an_exact_multiple_at_any_rate() {
        for gap in [
            Gap::from_pps(123_456_789_012, 1_000_000_000_000),
            Gap::from_pps(1, 8_000_000),
            Gap::from_pps(7, 3),
        ] {
            for by in [1, 3, 8, 64] {
                let exact = gap.seconds(0.0) * by as f64;
                let off = gap.times(by).seconds(0.0) / exact - 1.0;
                assert!(off.abs() < 1e-11 || exact > 9e6, "{gap:?} times {by}: {off}");
            }
        }
    }

    #[test]
    fn on_and_off_times_alternate() {
        let law = GapLaw::OnOff { on: Picos(30), off: Picos(100) };
        let mut t = line(Gap::PerFrame { num: 10, den: 1 }, law);
        let dues: Vec<_> = (0..7)
            .map(|_| {
                let due = t.due;
                t.advance(60);
                due
            })
            .collect();
        assert_eq!(dues, [0, 10, 20, 130, 140, 150, 260]);
    }

    #[test]
    fn of_any_span_that_ends_with_a_frame_the_active_part_is_that_of_its_gaps() {
        let law = GapLaw::OnOff { on: Picos(30), off: Picos(100) };
        let mut t = line(Gap::PerFrame { num: 10, den: 1 }, law.clone());
        for gaps in 0..100 {
            assert_eq!(law.active_within(Picos(t.due)), Picos(10 * gaps), "at {}", t.due);
            t.advance(60);
        }
        let long = law.active_within(Picos(130_000_000)).0 as f64 / 130e6;
        assert!((long - law.duty()).abs() < 1e-6, "{long}");
        assert_eq!(GapLaw::Exponential.active_within(Picos(7)), Picos(7));
    }

    #[test]
    fn any_bit_rate_leaves_room_for_the_longest_frame() {
        // Rates as a multiplier produces them: 10 Mb/s times a fraction of 10^12.
        for (num, den) in [
            (12_345_678_901_230_000_019, 1_000_000_000_000),
            (1_000_001, 1000),
            (u64::MAX, 3),
            (1, 7),
        ] {
            let Gap::PerOctet { num: n, den: d, .. } = Gap::from_bps(num, den, true) else {
                unreachable!()
            };
            assert!(n.checked_mul(65_559).is_some(), "{num}/{den}: {n}");
            let exact = 8e12 * den as f64 / num as f64;
            assert!((n as f64 / d as f64 / exact - 1.0).abs() < 1e-13, "{num}/{den}: {n}/{d}");
        }
    }

    #[test]
    fn a_gap_beyond_the_end_of_time_is_for_ever_and_not_over_at_once() {
        let pattern = Pattern { bursts: 2, packets: 1, gap: Picos(u64::MAX), tight: false };
        let mut t = Timeline::new(
            Gap::PerFrame { num: 10, den: 1 },
            GapLaw::Constant,
            pattern,
            0,
            Picos(5),
        );
        t.advance(60);
        assert_eq!(t.due(), Some(Picos(u64::MAX)));
    }

    #[test]
    fn frames_skipped_at_once_are_those_skipped_one_by_one() {
        for pattern in
            [Pattern::CONTINUOUS, Pattern { bursts: 3, packets: 50, gap: Picos(777), tight: false }]
        {
            let mut quick = Timeline::new(
                Gap::from_pps(7_000_000_000, 3),
                GapLaw::Constant,
                pattern,
                0,
                Picos(11),
            );
            let mut slow = quick.clone();
            for end in [5, 11, 12, 1000, 25_000, 40_000, 1_000_000].map(Picos) {
                let mut one_by_one = 0;
                while slow.due().is_some_and(|due| due < end) {
                    slow.advance(60);
                    one_by_one += 1;
                }
                assert_eq!(quick.due_before(end, |_| 60, u64::MAX), one_by_one, "{end:?}");
                while quick.due().is_some_and(|due| due < end) {
                    quick.skip_before(end);
                }
                assert_eq!(
                    (quick.due, quick.fraction, quick.left),
                    (slow.due, slow.fraction, slow.left),
                    "{end:?}"
                );
            }
        }
    }

    #[test]
    fn a_gap_longer_than_many_times_of_sending_takes_no_longer_to_compute() {
        let law = GapLaw::OnOff { on: Picos(1), off: Picos(2) };
        let mut t = line(Gap::from_pps(1, 1), law);
        t.advance(60);
        assert_eq!(t.due, 3_000_000_000_000);
    }

    #[test]
    fn without_gaps_sending_begins_again_with_the_next_period_however_late_the_port_is() {
        let mut t = line(Gap::Zero, GapLaw::OnOff { on: Picos(10), off: Picos(90) });
        for (sent, due) in
            [(0, 0), (9, 9), (10, 100), (105, 105), (350, 400), (409, 409), (502, 502), (515, 600)]
        {
            t.set_due(Picos(sent));
            t.advance(60);
            assert_eq!(t.due, due, "after a frame at {sent}");
        }
    }

    #[test]
    fn gamma_function_knows_its_values() {
        assert!((gamma(5.0) - 24.0).abs() < 1e-9 && (gamma(0.5) - PI.sqrt()).abs() < 1e-12);
    }
}
