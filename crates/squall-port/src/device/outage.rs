//! A device that restarts.

use std::str::FromStr;

use squall_units::Nanos;

use super::Counts;

/// No frame passes for `length`, beginning `at` after the first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    pub at: Nanos,
    pub length: Nanos,
}

impl FromStr for Reset {
    type Err = ();

    /// Parses `5s:200ms`; bare numbers are nanoseconds.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (at, length) = text.split_once(':').ok_or(())?;
        let (at, length) = (time(at).ok_or(())?, time(length).ok_or(())?);
        if length == Nanos::ZERO { Err(()) } else { Ok(Self { at, length }) }
    }
}

/// Parses `50us`; a bare number is nanoseconds.
pub fn time(text: &str) -> Option<Nanos> {
    match text.parse() {
        Ok(nanoseconds) => Some(Nanos(nanoseconds)),
        Err(_) => text.parse().ok(),
    }
}

/// When a frame arrives, relative to a [`Reset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Before,
    During,
    /// The first frame after the reset: the device has lost its state.
    Restarted,
    After,
}

/// Applies a [`Reset`] to the frames of a device.
#[derive(Clone, Debug)]
pub struct Outage {
    reset: Reset,
    /// Start and end of the reset; `None` before the first frame.
    window: Option<(Nanos, Nanos)>,
    restarted: bool,
    counts: Counts,
}

impl Outage {
    pub fn new(reset: Reset) -> Self {
        Self { reset, window: None, restarted: false, counts: Counts::default() }
    }

    /// The phase of a frame that arrives at `now`.
    pub fn phase(&mut self, now: Nanos) -> Phase {
        let begin = now + self.reset.at;
        let (begin, end) = *self.window.get_or_insert((begin, begin + self.reset.length));
        self.counts.frames += 1;
        if now < begin {
            return Phase::Before;
        }
        if now < end {
            self.counts.dropped += 1;
            return Phase::During;
        }
        match std::mem::replace(&mut self.restarted, true) {
            false => Phase::Restarted,
            true => Phase::After,
        }
    }

    /// Whether the reset catches a frame that arrived at `now` and would leave at `departure`: it
    /// was inside when the reset began, and is lost.
    pub fn catches(&mut self, now: Nanos, departure: Nanos) -> bool {
        let caught = self.window.is_some_and(|(begin, _)| now < begin && departure > begin);
        self.counts.dropped += u64::from(caught);
        caught
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_nanoseconds_unless_they_have_a_unit() {
        assert_eq!(
            (time("7"), time("50us"), time("x")),
            (Some(Nanos(7)), Some(Nanos(50_000)), None)
        );
        assert_eq!("1s:5".parse(), Ok(Reset { at: Nanos(1_000_000_000), length: Nanos(5) }));
        for text in ["", "1s", "1s:0", ":", "1:2:3", "a:b"] {
            assert_eq!(text.parse::<Reset>(), Err(()), "{text}");
        }
    }

    #[test]
    fn a_reset_begins_and_ends_when_it_was_asked_to_and_catches_what_is_inside() {
        let mut outage = Outage::new("100:50".parse().unwrap());
        let mut phase = |now| outage.phase(Nanos(now));
        assert_eq!([1000, 1099].map(&mut phase), [Phase::Before; 2]);
        assert_eq!([1100, 1149].map(&mut phase), [Phase::During; 2]);
        assert_eq!(
            [1150, 1150, 2000].map(&mut phase),
            [Phase::Restarted, Phase::After, Phase::After]
        );
        assert!(
            !outage.catches(Nanos(1099), Nanos(1100)) && outage.catches(Nanos(1099), Nanos(1101))
        );
        assert!(!outage.catches(Nanos(1150), Nanos(1200)));
        assert_eq!(outage.counts(), Counts { frames: 7, dropped: 3 });
    }
}
