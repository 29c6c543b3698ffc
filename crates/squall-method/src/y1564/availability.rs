//! Availability of a service (ITU-T Y.1563 §9.1).

use crate::trial::Second;

/// A second is severely errored if it loses more than this fraction of its frames (Y.1563 §9.1).
const SEVERE: f64 = 0.5;
/// Number of consecutive seconds that start or end unavailable time (Y.1563 §9.1).
const WINDOW: usize = 10;

/// Available seconds, and the frames sent and lost in them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Availability {
    pub available: usize,
    pub total: usize,
    pub severely_errored: usize,
    pub sent: u64,
    pub lost: u64,
}

impl Availability {
    pub fn of(seconds: &[Second]) -> Self {
        let errored: Vec<bool> = seconds.iter().map(severely_errored).collect();
        let mut sum = Self { total: seconds.len(), ..Self::default() };
        for (second, available) in seconds.iter().zip(available(&errored)) {
            if available {
                sum.available += 1;
                sum.severely_errored += usize::from(severely_errored(second));
                sum.sent += second.sent;
                sum.lost += second.sent.saturating_sub(second.received);
            }
        }
        sum
    }

    /// Fraction of the time that was available, 0 to 1; 1 if there is no time.
    pub fn ratio(&self) -> f64 {
        if self.total == 0 { 1.0 } else { self.available as f64 / self.total as f64 }
    }
}

fn severely_errored(second: &Second) -> bool {
    let lost = second.sent.saturating_sub(second.received);
    lost as f64 > second.sent as f64 * SEVERE
}

/// Whether each second is available. Unavailable time starts with the first of ten consecutive
/// severely errored seconds, and ends before the first of ten consecutive other seconds.
fn available(errored: &[bool]) -> Vec<bool> {
    let mut is = true;
    let state = |i: usize| {
        if errored[i..].len() >= WINDOW && errored[i..i + WINDOW].iter().all(|e| *e == is) {
            is = !is;
        }
        is
    };
    (0..errored.len()).map(state).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds in runs that are alternately good and severely errored, starting with a good run.
    fn seconds(runs: &[usize]) -> Vec<Second> {
        let run = |(i, &n): (usize, &usize)| {
            let received = if i % 2 == 0 { 99 } else { 49 };
            std::iter::repeat_n(Second { sent: 100, received }, n)
        };
        runs.iter().enumerate().flat_map(run).collect()
    }

    #[test]
    fn ten_severely_errored_seconds_begin_unavailable_time_and_ten_others_end_it() {
        for (runs, available, errored) in [
            (&[30][..], 30, 0),
            (&[10, 9, 10], 29, 9),
            (&[10, 10, 10], 20, 0),
            // Nine consecutive good seconds do not end unavailable time.
            (&[10, 10, 9, 1, 10], 20, 0),
            (&[0, 15], 0, 0),
            (&[5, 12, 20, 3, 10], 38, 3),
            // Too few good seconds to end unavailable time.
            (&[10, 10, 5], 10, 0),
        ] {
            let found = Availability::of(&seconds(runs));
            assert_eq!((found.available, found.severely_errored), (available, errored), "{runs:?}");
        }
    }

    #[test]
    fn loss_in_unavailable_time_is_not_counted() {
        let found = Availability::of(&seconds(&[10, 10, 10]));
        assert_eq!((found.sent, found.lost), (2000, 20));
        assert!((found.ratio() - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(Availability::of(&[]).ratio(), 1.0);
        // A second with half of its frames lost, and one without frames: neither is severely
        // errored.
        let half = [Second { sent: 100, received: 50 }, Second::default()];
        assert_eq!(Availability::of(&half).severely_errored, 0);
    }
}
