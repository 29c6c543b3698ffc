//! Congestion windows (RFC 5681, 9438) and round-trip times (RFC 6298).

use squall_units::Nanos;

/// Constant of the cubic curve, in segments per second cubed (RFC 9438 §5.1).
const C: f64 = 0.4;
/// Multiplicative decrease (RFC 9438 §4.6).
const BETA: f64 = 0.7;

/// State of CUBIC (RFC 9438 §4.1.2); windows are in octets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cubic {
    w_max: f64,
    /// Congestion window at the last reduction.
    prior: f64,
    /// Start of this epoch of congestion avoidance, and its K in seconds.
    epoch: Option<(Nanos, f64)>,
    w_est: f64,
    /// The last growth, and whether acknowledgments since then did not let the window grow.
    grown: Nanos,
    held: bool,
}

impl Cubic {
    /// The new slow start threshold after a loss or a mark with `flight` octets outstanding (RFC
    /// 9438 §4.6, 4.7).
    pub fn reduce(&mut self, cwnd: u32, flight: u32, mss: u32) -> u32 {
        let cwnd = f64::from(cwnd);
        // Fast convergence (§4.7): the window did not reach its last maximum, so another flow has
        // joined; a lower maximum releases bandwidth to it.
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.prior = cwnd;
        self.epoch = None;
        ((f64::from(flight) * BETA) as u32).max(2 * mss)
    }

    /// As [`Cubic::reduce`], after a time-out: congestion avoidance then begins at its maximum, with
    /// K = 0 (RFC 9438 §4.8).
    pub fn reduce_after_timeout(&mut self, cwnd: u32, flight: u32, mss: u32) -> u32 {
        let ssthresh = self.reduce(cwnd, flight, mss);
        self.w_max = 0.0;
        ssthresh
    }

    /// The window does not grow now, because the application does not use it: this time does not
    /// count for the curve (RFC 9438 §5.8), which would otherwise jump.
    pub fn hold(&mut self) {
        self.held = true;
    }

    /// The congestion window after `acked` more octets in congestion avoidance (RFC 9438 §4.2 to
    /// 4.5).
    pub fn grow(&mut self, now: Nanos, cwnd: u32, acked: u32, mss: u32, rtt: Nanos) -> u32 {
        let (window, segment) = (f64::from(cwnd), f64::from(mss));
        // One ACK may cover more than a window after a time-out.
        let acked = acked.min(cwnd);
        if std::mem::take(&mut self.held)
            && let Some((begun, _)) = &mut self.epoch
        {
            *begun = *begun + now.saturating_sub(self.grown);
        }
        self.grown = now;
        let (begun, k) = *self.epoch.get_or_insert_with(|| {
            self.w_est = window;
            self.w_max = self.w_max.max(window);
            (now, ((self.w_max - window) / segment / C).cbrt())
        });
        let t = now.saturating_sub(begun).as_secs_f64();
        let curve = |t: f64| (C * (t - k).powi(3)) * segment + self.w_max;
        // Equation 4 of §4.3: α makes Reno with β = 0.7 reach the average window of Reno with β =
        // 0.5; from the window of the last reduction on it grows by a segment a round trip, as
        // Reno.
        let alpha = if self.w_est >= self.prior { 1.0 } else { 3.0 * (1.0 - BETA) / (1.0 + BETA) };
        self.w_est += alpha * f64::from(acked) * segment / window;
        // At most 1.5 windows per round trip, which keeps growth below that of slow start (§4.2).
        let target = curve(t + rtt.as_secs_f64()).clamp(window, 1.5 * window);
        let grown = window + (target - window) * f64::from(acked) / window;
        // Reno-friendly region (§4.3): never below the window that Reno would have.
        (if curve(t) < self.w_est { self.w_est.max(window) } else { grown }) as u32
    }
}

/// Initial window for `segments` segments (RFC 6928 §2: min(10 MSS, max(2 MSS, 14,600)),
/// generalized).
pub(crate) fn initial_window(segments: u16, mss: u32) -> u32 {
    let segments = u32::from(segments);
    (segments * mss).min((segments * 1460).max(2 * mss))
}

/// Whether an acknowledgment increases a window of `cwnd`. A window that is not fully used proves
/// nothing about the path, so it does not grow (RFC 7661, 9438 §5.8). With a `limit` it grows up to
/// the peer's window `opened`, as in BSD.
#[inline]
pub(crate) fn grows(cwnd: u32, flight: u32, opened: u32, limit: u16) -> bool {
    flight >= cwnd / 2 || limit != 0 && cwnd <= opened
}

/// The number of octets that `acked` counts for in slow start: at most `limit` segments, unless
/// that is 0 (L of RFC 3465 §2.2).
#[inline]
pub(crate) fn slow_start(acked: u32, limit: u16, mss: u32) -> u32 {
    if limit == 0 { acked } else { acked.min(u32::from(limit) * mss) }
}

/// Half of the outstanding data (RFC 5681 §3.1, equation 4).
pub(crate) fn reno_reduce(flight: u32, mss: u32) -> u32 {
    (flight / 2).max(2 * mss)
}

/// The new window: one segment more per acknowledged window (RFC 5681 §3.1, RFC 3465). `counted`:
/// octets acknowledged after the window last grew.
pub(crate) fn reno_grow(cwnd: u32, acked: u32, mss: u32, counted: &mut u32) -> u32 {
    *counted += acked.min(cwnd);
    if *counted < cwnd {
        return cwnd;
    }
    *counted -= cwnd;
    cwnd.saturating_add(mss)
}

/// Smoothed round-trip time and its variation in microseconds (RFC 6298 §2); `srtt` 0: no sample
/// yet.
pub(crate) fn smooth(srtt: u32, rttvar: u32, sample: u32) -> (u32, u32) {
    let sample = sample.max(1);
    if srtt == 0 {
        return (sample, sample / 2);
    }
    // RTTVAR first: it uses the SRTT from before this sample (RFC 6298 §2.3).
    let rttvar = rttvar - rttvar / 4 + srtt.abs_diff(sample) / 4;
    let srtt = srtt - srtt / 8 + sample / 8;
    // 0 means "no sample", so SRTT stays above it.
    (srtt.max(1), rttvar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cubic_comes_back_to_where_it_was_after_k_seconds() {
        let mss = 1000;
        let mut cubic = Cubic::default();
        let mut cwnd = 100_000;
        cwnd = cubic.reduce(cwnd, cwnd, mss);
        assert_eq!(cwnd, 70_000);
        // K = cbrt(30 / 0.4) = 4.217 s. One window is acknowledged every 100 ms.
        let rtt = Nanos(100_000_000);
        let mut at = Nanos::ZERO;
        let mut first_over = None;
        for _ in 0..60 {
            for _ in 0..cwnd / mss {
                cwnd = cubic.grow(at, cwnd, mss, mss, rtt);
            }
            at = at + rtt;
            if cwnd >= 99_500 && first_over.is_none() {
                first_over = Some(at);
            }
        }
        let reached = first_over.unwrap().as_secs_f64();
        assert!((3.0..4.6).contains(&reached), "{reached}");
        assert!(cwnd > 100_000);
    }

    const RTT: Nanos = Nanos(100_000_000);
    const MSS: u32 = 1000;

    /// Windows of `rounds` round trips from `at` on: each window is acknowledged at its end.
    fn windows(
        cubic: &mut Cubic,
        at: &mut Nanos,
        rtt: Nanos,
        cwnd: &mut u32,
        rounds: u32,
    ) -> Vec<(f64, f64)> {
        let start = *at;
        let round = |_| {
            for _ in 0..*cwnd / MSS {
                *cwnd = cubic.grow(*at, *cwnd, MSS, MSS, rtt);
            }
            *at = *at + rtt;
            ((*at - start).as_secs_f64(), f64::from(*cwnd) / f64::from(MSS))
        };
        (0..rounds).map(round).collect()
    }

    /// Equation 1 of RFC 9438 §4.2 with the K of equation 2, in segments.
    fn curve(w_max: f64, epoch: f64) -> impl Fn(f64) -> f64 {
        let k = ((w_max - epoch) / 0.4).cbrt();
        move |t| 0.4 * (t - k).powi(3) + w_max
    }

    fn follow(windows: &[(f64, f64)], curve: impl Fn(f64) -> f64) {
        for (t, window) in windows {
            let expected = curve(*t);
            assert!((window - expected).abs() < 0.02 * expected, "{t}: {window} {expected}");
        }
    }

    #[test]
    fn windows_follow_the_curve_of_the_rfc() {
        let (mut cubic, mut at) = (Cubic::default(), Nanos::ZERO);
        let mut cwnd = cubic.reduce(1000 * MSS, 1000 * MSS, MSS);
        assert_eq!(cwnd, 700 * MSS);
        // Concave until K = 9.09 s, then convex.
        follow(&windows(&mut cubic, &mut at, RTT, &mut cwnd, 150), curve(1000.0, 700.0));
        // Fast convergence (§4.7): a window that did not reach its maximum aims lower.
        let mut cubic = Cubic::default();
        cubic.reduce(1000 * MSS, 1000 * MSS, MSS);
        let mut cwnd = cubic.reduce(900 * MSS, 900 * MSS, MSS);
        let maximum = 900.0 * 1.7 / 2.0;
        follow(&windows(&mut cubic, &mut at, RTT, &mut cwnd, 100), curve(maximum, 630.0));
        // After a time-out (§4.8): K = 0, and the maximum is where the curve begins.
        let mut cubic = Cubic::default();
        let mut cwnd = cubic.reduce_after_timeout(1000 * MSS, 1000 * MSS, MSS);
        follow(&windows(&mut cubic, &mut at, RTT, &mut cwnd, 80), curve(700.0, 700.0));
    }

    #[test]
    fn a_small_window_grows_as_that_of_reno() {
        let (mut cubic, mut at) = (Cubic::default(), Nanos::ZERO);
        let mut cwnd = cubic.reduce(20 * MSS, 20 * MSS, MSS);
        let rtt = Nanos(10_000_000);
        // §4.3: alpha = 3 * 0.3 / 1.7 segments a round trip up to the old window, then one.
        let grown = windows(&mut cubic, &mut at, rtt, &mut cwnd, 20);
        let alpha = 0.9 / 1.7;
        assert!((grown[9].1 - (14.0 + 10.0 * alpha)).abs() < 0.7, "{grown:?}");
        assert!((grown[19].1 - grown[14].1 - 5.0).abs() < 0.7, "{grown:?}");
    }

    #[test]
    fn time_without_growth_is_not_on_the_curve() {
        let (mut cubic, mut at) = (Cubic::default(), Nanos::ZERO);
        let mut cwnd = cubic.reduce(1000 * MSS, 1000 * MSS, MSS);
        windows(&mut cubic, &mut at, RTT, &mut cwnd, 30);
        cubic.hold();
        at = at + Nanos(20_000_000_000);
        let later = windows(&mut cubic, &mut at, RTT, &mut cwnd, 30);
        let curve = curve(1000.0, 700.0);
        follow(&later, |t| curve(t + 2.9));
    }

    #[test]
    fn reno_grows_by_a_segment_a_round_trip() {
        let (mut cwnd, mut counted) = (10_000, 0);
        for expected in [11_000, 12_000] {
            for _ in 0..cwnd / 1000 {
                cwnd = reno_grow(cwnd, 1000, 1000, &mut counted);
            }
            assert_eq!((cwnd, counted), (expected, 0));
        }
        assert_eq!((reno_reduce(10_000, 1000), reno_reduce(3000, 1000)), (5000, 2000));
    }

    #[test]
    fn the_first_sample_is_the_round_trip_time_and_later_ones_move_it() {
        assert_eq!(smooth(0, 0, 800), (800, 400));
        assert_eq!(smooth(800, 400, 1600), (900, 500));
    }
}
