//! Congestion controls over a bottleneck, in virtual time.

use squall_tcp::{Congestion, Tunables};
use squall_units::Nanos;

use crate::common::{Fault, Pair, Plan};

const MS: u64 = 1_000_000;
/// Octets per second of IP packets: 8 Mbit/s, with a round trip of 40 ms.
const RATE: u64 = 1_000_000;
const BDP: u64 = RATE / 25;

struct Course {
    pair: Pair,
    /// Phases of BBR, each with the time at which it began.
    phases: Vec<(Nanos, &'static str)>,
    /// Time that the data took.
    lasted: Nanos,
    /// The longest wait in the queue after the first second.
    longest_wait: Nanos,
}

impl Course {
    /// Share of the bottleneck's rate that the payload had.
    fn share(&self) -> f64 {
        let payload = f64::from(self.pair.plan.request) / self.lasted.as_secs_f64();
        payload / (RATE as f64 * 1448.0 / 1500.0)
    }
}

/// A client sends `octets` to its server; `meanwhile` may change the path.
fn course(
    congestion: Congestion,
    octets: u32,
    fault: Fault,
    mut meanwhile: impl FnMut(Nanos, &mut Pair),
) -> Course {
    let tunables = Tunables { congestion, ..Tunables::default() };
    let fault = Fault { delay: Nanos(20 * MS), rate: RATE, ..fault };
    let mut pair =
        Pair::new(Plan { request: octets, response: 1, tunables, fault, ..Plan::default() });
    let start = pair.now;
    let (mut phases, mut longest_wait) = (Vec::<(Nanos, &str)>::new(), Nanos::ZERO);
    let mut end = start;
    while pair.step() {
        let since = pair.now - start;
        meanwhile(since, &mut pair);
        let info = pair.client.look(0, 1).next();
        if let Some((phase, _)) = info.and_then(|flow| flow.bbr)
            && phases.last().is_none_or(|(_, last)| *last != phase)
        {
            phases.push((since, phase));
        }
        if since > Nanos::SECOND {
            longest_wait = longest_wait.max(pair.free_at.saturating_sub(pair.now));
        }
        if pair.server.app().ended.is_empty() {
            end = pair.now;
        }
    }
    pair.check();
    Course { pair, phases, lasted: end - start, longest_wait }
}

fn still(_: Nanos, _: &mut Pair) {}

#[test]
fn bbr_goes_through_its_phases_and_fills_the_path_without_filling_the_queue() {
    let deep = Fault { queue: 4 * BDP, ..Fault::default() };
    let bbr = course(Congestion::Bbr, 12_000_000, deep, still);
    let names: Vec<_> = bbr.phases.iter().map(|(_, name)| *name).collect();
    assert_eq!(names[..2], ["Startup", "Drain"], "{:?}", bbr.phases);
    for (place, pair) in names.windows(2).enumerate() {
        let (at, _) = bbr.phases[place + 1];
        let expected = match pair[0] {
            "Startup" => &["Drain"][..],
            // If the queue is already drained, the next acknowledgment finds it so.
            "Drain" => &["ProbeBW_DOWN", "ProbeBW_CRUISE"],
            "ProbeBW_UP" => &["ProbeBW_DOWN", "ProbeRTT"],
            // The Reno-like time scale may be over before the queue is drained.
            "ProbeBW_DOWN" => &["ProbeBW_CRUISE", "ProbeBW_REFILL", "ProbeRTT"],
            "ProbeBW_CRUISE" => &["ProbeBW_REFILL", "ProbeRTT"],
            "ProbeBW_REFILL" => &["ProbeBW_UP", "ProbeRTT"],
            _ => &["ProbeBW_CRUISE"],
        };
        assert!(expected.contains(&pair[1]), "{pair:?} at {at:?}");
    }
    // The minimum of round-trip times is stale 5 s after it was measured.
    let probe = bbr.phases.iter().find(|(_, name)| *name == "ProbeRTT").expect("12 s");
    assert!((5.0..7.0).contains(&probe.0.as_secs_f64()), "{:?}", bbr.phases);
    assert!(bbr.share() > 0.9, "{}", bbr.share());
    assert_eq!(bbr.pair.overflows, 0);

    let cubic = course(Congestion::Cubic, 12_000_000, deep, still);
    assert!(cubic.pair.overflows > 0, "a window grows until the queue is full");
    assert!(cubic.share() > 0.9, "{}", cubic.share());
    let (own, others) = (bbr.longest_wait, cubic.longest_wait);
    assert!(own.0 * 2 < others.0, "{own} of queue with BBR, {others} with CUBIC");
}

#[test]
fn random_loss_costs_bbr_little_and_cubic_much() {
    let lossy = Fault { queue: BDP, loss: 0.01, ..Fault::default() };
    let bbr = course(Congestion::Bbr, 6_000_000, lossy, still).share();
    let cubic = course(Congestion::Cubic, 6_000_000, lossy, still).share();
    // A lost segment of the 27 in flight is more than BBR's threshold, so some probes end early.
    assert!(bbr > 0.7, "{bbr}");
    assert!((0.1..0.6).contains(&cubic), "{cubic}");
}

#[test]
fn bbr_bounds_its_losses_in_a_shallow_queue() {
    let shallow = Fault { queue: BDP / 4, ..Fault::default() };
    let bbr = course(Congestion::Bbr, 8_000_000, shallow, still);
    assert!(bbr.share() > 0.8, "{}", bbr.share());
    let lost = bbr.pair.overflows as f64 / bbr.pair.sent as f64;
    assert!(bbr.pair.overflows > 0 && lost < 0.02, "{lost}: the threshold is 2 %");
}

#[test]
fn bbr_finds_a_new_bandwidth_in_both_directions() {
    let queue = Fault { queue: BDP, ..Fault::default() };
    let mut paces = Vec::new();
    course(Congestion::Bbr, 12_000_000, queue, |since, pair| {
        // Half of the rate for 12 s: the filter of the maximum covers two cycles of 2 to 3 s.
        let seconds = since.0 / Nanos::SECOND.0;
        pair.plan.fault.rate = if (2..14).contains(&seconds) { RATE / 2 } else { RATE };
        if let Some((_, pace)) = pair.client.look(0, 1).next().and_then(|flow| flow.bbr)
            && seconds as usize >= paces.len()
        {
            paces.push(pace as f64 / RATE as f64);
        }
    });
    let half = paces[11..14].iter().sum::<f64>() / 3.0;
    assert!((0.3..0.7).contains(&half), "{paces:?}");
    assert!(paces[17] > 0.8, "{paces:?}");
}

#[test]
fn bbr_paces_where_cubic_bursts() {
    let longest_burst = |congestion| {
        let tunables = Tunables { congestion, ..Tunables::default() };
        let fault = Fault { delay: Nanos(20 * MS), rate: RATE, queue: 4 * BDP, ..Fault::default() };
        let plan = Plan { request: 300_000, tunables, fault, record: true, ..Plan::default() };
        let mut pair = Pair::new(plan);
        pair.run();
        pair.check();
        let data: Vec<_> =
            pair.recorded.iter().filter(|(_, packet)| packet.len() > 1000).map(|p| p.0).collect();
        // Packets within 100 us.
        let burst = |i: usize| data[i..].iter().take_while(|at| at.0 - data[i].0 < MS / 10).count();
        (0..data.len()).map(burst).max().unwrap_or(0)
    };
    let (bbr, cubic) = (longest_burst(Congestion::Bbr), longest_burst(Congestion::Cubic));
    assert!(cubic >= 10, "the initial window leaves at once: {cubic}");
    assert!((1..=5).contains(&bbr), "{bbr}");
}

#[test]
fn bbr_survives_an_outage() {
    let queue = Fault { queue: BDP, ..Fault::default() };
    let found = course(Congestion::Bbr, 6_000_000, queue, |since, pair| {
        let dark = (2_000..3_000).contains(&(since.0 / MS));
        pair.plan.fault.loss = if dark { 1.0 } else { 0.0 };
    });
    assert!(found.pair.client.counters(found.pair.class).rto_timeouts > 0);
    // 6 s of data and 1 s of darkness, with less than 2 s until the window is found again.
    assert!(found.lasted < Nanos(10_000 * MS), "{:?} {:?}", found.lasted, found.phases);
}

#[test]
fn retransmissions_that_are_lost_cost_round_trips_and_not_time_outs() {
    // Slow start overshoots by a whole window, and most retransmissions meet a full queue.
    for congestion in [Congestion::NewReno, Congestion::Cubic] {
        let window = 4 << 20;
        let tunables = Tunables {
            congestion,
            window,
            wscale: Some(8),
            reassembly: window,
            ..Tunables::default()
        };
        let (rate, request) = (2_500_000, 5_000_000);
        let fault = Fault { delay: Nanos(5 * MS), rate, queue: rate / 100, ..Fault::default() };
        let mut pair = Pair::new(Plan { request, response: 1, tunables, fault, ..Plan::default() });
        let start = pair.now;
        while pair.server.app().ended.is_empty() && pair.step() {}
        let lasted = pair.now - start;
        pair.run();
        pair.check();
        assert!(lasted < Nanos(2_400 * MS), "{congestion:?}: {lasted} for 2.1 s of frames");
        assert!(pair.overflows * 20 < pair.sent, "{congestion:?}: {} lost", pair.overflows);
        assert_eq!(pair.client.counters(pair.class).rto_timeouts, 0, "{congestion:?}");
    }
}

/// A path of 20 Mbit/s and 50 ms. Octets per second of IP packets, and full ones of a round trip.
const WIDE: u64 = 2_500_000;
const WIDE_BDP: f64 = WIDE as f64 * 0.05 / 1500.0;

/// Shares of the rate of that path that arrive in order, in each second. `bdps`: length of the queue.
fn shares(congestion: Congestion, (loss, bdps): (f64, f64), seconds: u64, seed: u64) -> Vec<f64> {
    let window = 4 << 20;
    let tunables =
        Tunables { congestion, window, wscale: Some(8), reassembly: window, ..Tunables::default() };
    let queue = (WIDE_BDP * 1500.0 * bdps) as u64;
    let fault = Fault { delay: Nanos(25 * MS), rate: WIDE, queue, loss, ..Fault::default() };
    // More than the path carries in the time of any test here.
    let request = 100_000_000;
    let mut pair =
        Pair::new(Plan { request, response: 1, tunables, fault, seed, ..Plan::default() });
    let (start, class) = (pair.now, pair.class);
    let (mut shares, mut before) = (Vec::new(), 0);
    for second in 1..=seconds {
        while pair.now - start < Nanos(second * Nanos::SECOND.0) && pair.step() {}
        let delivered = pair.server.counters(class).delivered;
        let octets = (delivered - before) as f64;
        shares.push(octets / (WIDE as f64 * 1448.0 / 1500.0));
        before = delivered;
    }
    shares
}

/// The average share from the third second on, over several seeds.
fn share_of_seeds(congestion: Congestion, path: (f64, f64)) -> f64 {
    let of = |seed| shares(congestion, path, 20, seed)[2..].iter().sum::<f64>() / 18.0;
    (1..=8).map(of).sum::<f64>() / 8.0
}

#[test]
fn random_losses_leave_each_control_what_its_model_says() {
    let loss = 0.01_f64;
    let of = |congestion| share_of_seeds(congestion, (loss, 1.0));
    // The average window of Reno with these losses in segments (RFC 9438 §4.3, with α = 1, β = 0.5).
    let window = (1.5 / loss).sqrt();
    let reno = of(Congestion::NewReno) * WIDE_BDP;
    assert!((0.85..1.2).contains(&(reno / window)), "{reno} of {window}");
    // CUBIC's is Reno's until it is at its last maximum, from where it grows as Reno with β = 0.7.
    let most = (1.7 / 0.6 / loss).sqrt();
    let cubic = of(Congestion::Cubic) * WIDE_BDP;
    assert!((0.95 * window..most).contains(&cubic), "{cubic} of {window} to {most}");
    // BBR slows down by the loss in each of up to 63 round trips between two probes (the draft's
    // "Design Considerations for Choosing Constant Parameters").
    let bbr = of(Congestion::Bbr);
    let expected = (1.0 - (1.0 - loss).powi(63)) / (63.0 * loss);
    assert!(bbr > 0.95 * expected, "{bbr} of {expected}");
}

#[test]
fn losses_of_a_slow_start_cost_round_trips_and_not_seconds() {
    // With the short queue, many retransmissions are lost, too.
    for (congestion, bdps) in
        [(Congestion::Bbr, 0.25), (Congestion::Bbr, 1.0), (Congestion::Cubic, 1.0)]
    {
        let shares = shares(congestion, (0.0, bdps), 4, 1);
        assert!(
            shares[0] > 0.5 && shares[1..].iter().all(|share| *share > 0.9),
            "{congestion:?} {bdps}: {shares:?}"
        );
    }
}

#[test]
fn a_short_queue_leaves_most_of_the_rate() {
    for congestion in [Congestion::Bbr, Congestion::Cubic] {
        let share = shares(congestion, (0.0, 0.25), 20, 1)[2..].iter().sum::<f64>() / 18.0;
        assert!(share > 0.93, "{congestion:?}: {share}");
    }
}
