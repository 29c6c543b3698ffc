//! The messages by which hosts and routers agree on multicast groups. IGMP has them for IPv4
//! ([`crate::igmp`]), MLD for IPv6 ([`crate::mld`]).

use std::net::{IpAddr, Ipv4Addr};

use squall_units::{MacAddr, Nanos, be16};

/// Version of the protocol. MLDv1 is IGMPv2, and MLDv2 is IGMPv3, with other formats (RFC 2710
/// section 1, RFC 3810 section 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupVersion {
    /// IGMPv1 (RFC 1112).
    One,
    /// IGMPv2 (RFC 2236), MLDv1 (RFC 2710).
    Two,
    /// IGMPv3 (RFC 3376), MLDv2 (RFC 3810).
    #[default]
    Three,
}

/// A message of IGMP or MLD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupMessage {
    Query(Query),
    /// Membership of one group, in versions 1 and 2.
    Report {
        version: GroupVersion,
        group: IpAddr,
    },
    /// End of a membership, in version 2 (Leave, Done).
    Leave(IpAddr),
    /// A report of version 3.
    Records(Vec<Record>),
}

/// A query of a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub version: GroupVersion,
    /// Hosts answer within this time. Version 1 has none in the message: it is 10 s.
    pub max_response: Nanos,
    /// `None`: a general query, for all groups.
    pub group: Option<IpAddr>,
    /// Sources that the query is about; empty: all. Version 3 only.
    pub sources: Vec<IpAddr>,
    /// Tells other routers not to change their timers (RFC 3376 section 4.1.5).
    pub suppress: bool,
    /// The querier's robustness variable, 0: unknown; and its query interval. Version 3 only.
    pub robustness: u8,
    pub interval: Option<Nanos>,
}

/// A group record of version 3 (RFC 3376 section 4.2.12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub kind: RecordKind,
    pub group: IpAddr,
    pub sources: Vec<IpAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    IsInclude = 1,
    IsExclude = 2,
    ToInclude = 3,
    ToExclude = 4,
    Allow = 5,
    Block = 6,
}

impl RecordKind {
    pub(crate) fn of(octet: u8) -> Option<Self> {
        use RecordKind::{Allow, Block, IsExclude, IsInclude, ToExclude, ToInclude};
        Some(match octet {
            1 => IsInclude,
            2 => IsExclude,
            3 => ToInclude,
            4 => ToExclude,
            5 => Allow,
            6 => Block,
            _ => return None,
        })
    }
}

/// Response time of version 1 (RFC 1112 appendix I).
pub(crate) const FIRST_RESPONSE: Nanos = Nanos(10_000_000_000);

impl GroupMessage {
    /// The name of the message's kind, for counters.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Query(query) if query.group.is_none() => "general_query",
            Self::Query(query) if query.sources.is_empty() => "group_query",
            Self::Query(_) => "source_query",
            Self::Report { version: GroupVersion::One, .. } => "v1_report",
            Self::Report { .. } => "v2_report",
            Self::Leave(_) => "leave",
            Self::Records(_) => "v3_report",
        }
    }
}

impl Query {
    /// Reads what only version 3 has: `rest` follows the group address, and addresses have `N`
    /// octets (RFC 3376 section 4.1, RFC 3810 section 5.1).
    pub(crate) fn read_rest<const N: usize>(&mut self, rest: &[u8]) -> Result<(), &'static str>
    where
        IpAddr: From<[u8; N]>,
    {
        let (head, sources) = rest.split_first_chunk::<4>().ok_or("truncated")?;
        self.suppress = head[0] & 8 != 0;
        self.robustness = head[0] & 7;
        self.interval = Some(Nanos(units(head[1]) * Nanos::SECOND.0));
        self.sources = addresses(sources, be16(head, 2).into()).ok_or("truncated")?;
        if self.group.is_none() && !self.sources.is_empty() {
            return Err("sources_without_group");
        }
        Ok(())
    }
}

/// Reads the group records of a report of version 3, whose addresses have `N` octets (RFC 3376
/// section 4.2, RFC 3810 section 5.2). `report` has at least 8 octets.
pub(crate) fn records<const N: usize>(report: &[u8]) -> Result<Vec<Record>, &'static str>
where
    IpAddr: From<[u8; N]>,
{
    let mut rest = &report[8..];
    let mut records = Vec::new();
    for _ in 0..be16(report, 6) {
        let (head, more) = rest.split_first_chunk::<4>().ok_or("truncated")?;
        let (group, more) = more.split_first_chunk::<N>().ok_or("truncated")?;
        let group = IpAddr::from(*group);
        let count = usize::from(be16(head, 2));
        let sources = addresses(more, count).ok_or("truncated")?;
        // Unknown kinds are ignored (RFC 3376 section 4.2.12, RFC 3810 section 5.2.12).
        if let Some(kind) = RecordKind::of(head[0])
            && group.is_multicast()
        {
            records.push(Record { kind, group, sources });
        }
        rest = more.get(count * N + usize::from(head[1]) * 4..).ok_or("truncated")?;
    }
    Ok(records)
}

fn addresses<const N: usize>(octets: &[u8], count: usize) -> Option<Vec<IpAddr>>
where
    IpAddr: From<[u8; N]>,
{
    let (all, _) = octets.get(..count * N)?.as_chunks::<N>();
    Some(all.iter().map(|octets| IpAddr::from(*octets)).collect())
}

/// Whether hosts report their membership of `group`: not of the group of all hosts, nor of groups
/// that do not leave the interface (RFC 3376 section 5, RFC 3810 section 6).
pub fn is_reported(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.is_multicast() && group != Ipv4Addr::new(224, 0, 0, 1),
        IpAddr::V6(group) => {
            let scope = group.octets()[1] & 15;
            group.is_multicast() && scope > 1 && group.segments() != [0xff02, 0, 0, 0, 0, 0, 0, 1]
        }
    }
}

/// The MAC address of a multicast group (RFC 1112 section 6.4, RFC 2464 section 7).
pub fn group_mac(group: IpAddr) -> MacAddr {
    match group {
        IpAddr::V4(group) => {
            let [_, b, c, d] = group.octets();
            MacAddr([1, 0, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V6(group) => {
            let [.., a, b, c, d] = group.octets();
            MacAddr([0x33, 0x33, a, b, c, d])
        }
    }
}

/// The 8-bit floating-point code of a time in units (RFC 3376 sections 4.1.1 and 4.1.7): the
/// largest that is not above `units`.
pub(crate) fn code(units: u64) -> u8 {
    if units < 128 {
        return units as u8;
    }
    for exponent in 0..8u32 {
        let mantissa = units >> (exponent + 3);
        if mantissa < 32 {
            return 0x80 | (exponent as u8) << 4 | (mantissa & 15) as u8;
        }
    }
    u8::MAX
}

/// The number of units of a code.
pub(crate) fn units(code: u8) -> u64 {
    match code {
        0..128 => code.into(),
        _ => u64::from(code & 15 | 16) << ((code >> 4 & 7) + 3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_times_are_those_of_rfc_3376() {
        assert_eq!([code(100), code(127)], [100, 127]);
        // 0x80: mantissa 0, exponent 0: 16 << 3.
        assert_eq!((code(128), units(0x80)), (0x80, 128));
        assert_eq!(units(0xff), 31 << 10);
        assert_eq!(code(u64::MAX), 0xff);
        for all in 0..=u8::MAX {
            assert_eq!(code(units(all)), all);
            let between = units(all) + u64::from(all >= 128);
            assert_eq!(code(between), all, "rounded down");
        }
    }

    #[test]
    fn groups_have_their_mac_addresses() {
        let mac = |text: &str| group_mac(text.parse().unwrap()).to_string();
        assert_eq!(mac("239.129.2.3"), "01:00:5e:01:02:03");
        assert_eq!(mac("ff3e::8000:1:2"), "33:33:00:01:00:02");
    }

    #[test]
    fn the_group_of_all_hosts_is_not_reported() {
        let reported = |text: &str| is_reported(text.parse().unwrap());
        assert!(reported("224.0.0.251") && reported("ff02::fb") && reported("ff3e::1"));
        assert!(!reported("224.0.0.1") && !reported("ff02::1") && !reported("ff01::5"));
        assert!(!reported("10.0.0.1") && !reported("fe80::1"));
    }
}
