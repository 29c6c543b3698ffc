//! Streams that continue in a new run at their position in the previous one.

use std::collections::HashMap;

use squall_profile::{Mode, Stream};
use squall_units::Nanos;

/// Maximum number of steps along a chain of streams, because a long history must not block a
/// restart.
const FOLLOWED: usize = 1_000_000;

/// Number of frames that a stream sends in all; `None` if it is endless.
pub fn frames(mode: Mode) -> Option<u64> {
    match mode {
        Mode::Continuous => None,
        Mode::Burst(packets) => Some(packets),
        Mode::Bursts { bursts, .. } if bursts == u64::MAX => None,
        Mode::Bursts { bursts, packets, .. } => bursts.checked_mul(packets),
    }
}

/// Position in a chain of streams: the index of the current stream, and the number of its frames
/// sent so far.
enum At {
    Stream(usize, u64),
    End,
}

/// Makes streams continue from the frames that they sent in former runs (`sent`, by name). A stream
/// that has ended does not start, a stream that has begun continues with its next frame, and in a
/// chain, the stream that was active starts.
pub(crate) fn carry_on(streams: &mut [Stream], sent: &HashMap<String, u64>) {
    for stream in &mut *streams {
        stream.sent = sent.get(&stream.name).copied().unwrap_or(0);
    }
    let mut left: Vec<u64> = streams.iter().map(|stream| stream.sent).collect();
    let begun = |i: &usize| streams[*i].self_start && left[*i] > 0;
    let begun: Vec<usize> = (0..streams.len()).filter(begun).collect();
    for first in begun {
        streams[first].self_start = false;
        let At::Stream(at, done) = follow(streams, &mut left, first) else { continue };
        let stream = &mut streams[at];
        stream.self_start = true;
        if done > 0 {
            stream.start_delay = Nanos::ZERO;
        }
    }
}

/// Follows the `next` links that were taken, and subtracts the frames of these streams from `left`.
fn follow(streams: &mut [Stream], left: &mut [u64], first: usize) -> At {
    let mut at = first;
    for _ in 0..FOLLOWED {
        let all = frames(streams[at].mode);
        let Some(all) = all.filter(|all| *all <= left[at]) else {
            return At::Stream(at, std::mem::take(&mut left[at]));
        };
        left[at] -= all;
        match &mut streams[at].next {
            Some(next) if next.times != Some(0) => {
                next.times = next.times.map(|times| times - 1);
                at = next.stream;
            }
            _ => return At::End,
        }
    }
    At::Stream(at, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_profile::{Format, Profile};

    /// Streams with these modes, and with these links (from, to, repetitions).
    fn streams(modes: &[Mode], arrows: &[(usize, usize, Option<u64>)]) -> Vec<Stream> {
        let mut text = String::from("[ports]\nA = \"null:\"\n");
        for i in 0..modes.len() {
            text += &format!("[[stream]]\nname = \"s{i}\"\npacket = \"eth/ipv4/udp\"\n");
            text += "rate = \"1 kpps\"\nstart_delay = \"1 s\"\n";
        }
        let profile = Profile::parse(&text, "test", Format::Toml).expect("a profile");
        let mut streams = profile.streams;
        for (stream, mode) in streams.iter_mut().zip(modes) {
            stream.mode = *mode;
        }
        for (from, to, times) in arrows {
            streams[*from].next = Some(squall_profile::Next { stream: *to, times: *times });
            streams[*to].self_start = *to == 0;
        }
        streams
    }

    fn carried(mut streams: Vec<Stream>, sent: &[(&str, u64)]) -> Vec<Stream> {
        let sent = sent.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        carry_on(&mut streams, &sent);
        streams
    }

    #[test]
    fn a_burst_that_has_ended_waits_and_one_under_way_has_its_rest() {
        let all = streams(&[Mode::Burst(10), Mode::Burst(10), Mode::Burst(10)], &[]);
        let all = carried(all, &[("s0", 10), ("s1", 4)]);
        assert_eq!([0, 1, 2].map(|i| all[i].self_start), [false, true, true]);
        assert_eq!((all[1].mode, all[1].sent), (Mode::Burst(10), 4));
        assert_eq!(all[1].start_delay, Nanos::ZERO);
        assert_eq!((all[2].mode, all[2].start_delay.0), (Mode::Burst(10), 1_000_000_000));
    }

    #[test]
    fn a_stream_without_end_goes_on_without_its_delay() {
        let all = carried(streams(&[Mode::Continuous], &[]), &[("s0", 7)]);
        assert!(all[0].self_start && all[0].start_delay == Nanos::ZERO);
        assert_eq!(all[0].sent, 7);
    }

    #[test]
    fn a_series_of_bursts_continues_within_its_burst() {
        let gap = Nanos(5);
        let mode = Mode::Bursts { bursts: 5, packets: 10, gap };
        let all = carried(streams(&[mode], &[]), &[("s0", 25)]);
        assert_eq!((all[0].mode, all[0].sent), (mode, 25));
    }

    #[test]
    fn of_streams_that_follow_each_other_that_one_begins_that_has_its_turn() {
        let chain = || streams(&[Mode::Burst(10), Mode::Burst(20)], &[(0, 1, None)]);
        let all = carried(chain(), &[("s0", 10), ("s1", 5)]);
        assert_eq!((all[0].self_start, all[1].self_start), (false, true));
        assert_eq!((all[1].mode, all[1].sent), (Mode::Burst(20), 5));
        let all = carried(chain(), &[("s0", 10), ("s1", 20)]);
        assert_eq!((all[0].self_start, all[1].self_start), (false, false));
    }

    #[test]
    fn a_chain_that_comes_back_goes_on_in_its_round() {
        let chain =
            || streams(&[Mode::Burst(10), Mode::Burst(20)], &[(0, 1, None), (1, 0, Some(3))]);
        // Two rounds, and ten frames of the second stream's third burst.
        let all = carried(chain(), &[("s0", 30), ("s1", 50)]);
        assert_eq!((all[0].self_start, all[1].self_start), (false, true));
        assert_eq!((all[0].sent, all[1].sent), (30, 50));
        assert_eq!(all[1].next.expect("an arrow").times, Some(1));
        let all = carried(chain(), &[("s0", 40), ("s1", 80)]);
        assert_eq!((all[0].self_start, all[1].self_start), (false, false));
    }
}
