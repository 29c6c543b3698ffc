//! `squall edit`: rewrites, merges and splits captures.

use std::{path::PathBuf, process::ExitCode};

use squall::Error;
use squall_offline::edit::{
    Edited, Progress, Settings, Split, edit as edit_captures,
    edits::{
        AddressMap, Edits, Encapsulation, Endpoints, Factor, FixLen, Key, MacPair, MacSwap,
        Numbers, PortMap, Ttl, Vlan, VlanMode, When,
    },
    parse_shift, parse_vlan_mode, parse_when,
};
use squall_port::output::Permit;
use squall_report::render::human;
use squall_units::{Nanos, parse_count};

use crate::{
    args::command_line,
    drive::Signals,
    output::{self, Results},
    progress::ProgressLine,
};

/// Rewrite captures: addresses, ports, tags, lengths, link types, times; merge and split them
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "squall edit [OPTIONS] <IN>... <OUT>",
    after_help = "\
Examples:
  squall edit in.pcap out.pcap --pnat 10.0.0.0/8:172.16.0.0/12 --enet-dmac 02:00:00:00:00:02
  squall edit in.pcap out.pcap --endpoints 10.1.0.1:10.2.0.1 --portmap 80:8080 --ttl=-1
  squall edit office.pcapng shared.pcapng --anonymize 'my secret' --snaplen 96
  squall edit old.pcap out.pcap --dlt enet --fixlen pad --fixcsum
  squall edit a.pcap b.pcap both.pcapng --merge                # in order of time
  squall edit big.pcapng part.pcapng --packets 1000-2000
  squall edit big.pcap hour.pcap --split-time 1h               # hour-00001.pcap, hour-00002.pcap \
                  ...
  squall edit big.pcap out.pcap --fragment 576 --json -

Options that tcprewrite has keep their names and meanings. Only outer headers are edited: packets \
                  quoted in ICMP errors and packets in tunnels stay. Checksums are updated: a \
                  correct one stays correct, a wrong one stays wrong, unless --fixcsum. A damaged \
                  file is edited up to the damage; the exit status is then 2."
)]
pub struct Args {
    /// IN, one or several: pcap or pcapng, compressed or not; - is standard input. The last is OUT,
    /// a pcapng or a pcap by its name's ending; - is standard output
    #[arg(value_name = "FILE", required_unless_present_any = ["infile", "outfile"], num_args = 2..)]
    files: Vec<PathBuf>,
    /// The same as IN, as in tcprewrite
    #[arg(short, long, value_name = "IN", requires = "outfile", conflicts_with = "files")]
    infile: Option<PathBuf>,
    /// The same as OUT, as in tcprewrite
    #[arg(short, long, value_name = "OUT", requires = "infile", conflicts_with = "files")]
    outfile: Option<PathBuf>,
    #[command(flatten)]
    edits: EditArgs,
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    several: SeveralArgs,
    /// Overwrite OUT if it exists, and fill more than half of the free space of its disk
    #[arg(long, help_heading = "Result")]
    force: bool,
    /// Write the summary as JSON; - is standard output
    #[arg(long, value_name = "FILE|-", help_heading = "Result")]
    json: Option<String>,
    /// Show no progress and no summary
    #[arg(short, long, help_heading = "Result")]
    quiet: bool,
}

/// Edits of each packet; other commands that edit packets share them.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Link")]
pub struct EditArgs {
    /// Set the destination MAC address of packets from clients, and after a comma that of packets
    /// from servers
    #[arg(long, value_name = "MAC[,MAC]")]
    enet_dmac: Option<MacPair>,
    /// Set the source MAC address, likewise
    #[arg(long, value_name = "MAC[,MAC]")]
    enet_smac: Option<MacPair>,
    /// Replace the first MAC address with the second, as source and as destination; repeatable
    #[arg(long, value_name = "MAC,MAC")]
    enet_subsmac: Vec<MacSwap>,
    /// Replace MAC addresses with random ones, each always with the same one
    #[arg(long, value_name = "SEED")]
    enet_mac_seed: Option<u64>,
    /// Keep the first N octets of each address
    #[arg(long, value_name = "N", requires = "enet_mac_seed", value_parser = clap::value_parser!(u8).range(1..=6))]
    enet_mac_seed_keep_bytes: Option<u8>,
    /// Do not change multicast and broadcast MAC addresses
    #[arg(long, visible_alias = "skip-l2broadcast")]
    skipl2broadcast: bool,
    /// Change VLAN tags: add (before existing ones), del (the outer one), rewrite (the outer one)
    #[arg(long, value_name = "add|del|rewrite", value_parser = parse_vlan_mode)]
    enet_vlan: Option<VlanMode>,
    /// Set the VLAN id of the tag
    #[arg(long, value_name = "0-4095", requires = "enet_vlan", value_parser = clap::value_parser!(u16).range(0..=4095))]
    enet_vlan_tag: Option<u16>,
    /// Set the CFI (DEI) of the tag
    #[arg(long, value_name = "0-1", requires = "enet_vlan", value_parser = clap::value_parser!(u8).range(0..=1))]
    enet_vlan_cfi: Option<u8>,
    /// Set the priority of the tag
    #[arg(long, value_name = "0-7", requires = "enet_vlan", value_parser = clap::value_parser!(u8).range(0..=7))]
    enet_vlan_pri: Option<u8>,
    /// Add a tag of this kind
    #[arg(long, value_name = "802.1q|802.1ad", requires = "enet_vlan", default_value = "802.1q", value_parser = ["802.1q", "802.1ad"], hide_possible_values = true)]
    enet_vlan_proto: String,
    /// Write this link type: enet, raw, hdlc, pppserial; packets without a network packet are
    /// dropped
    #[arg(long, value_name = "LINK")]
    dlt: Option<Encapsulation>,
    /// Remove the last four octets of frames (a captured FCS)
    #[arg(short = 'E', long)]
    efcs: bool,

    /// Map networks to others, the first that fits:
    /// 10.0.0.0/8:172.16.0.0/12,[2001:db8::/32]:[fd00::/32]. Given twice: the first maps the
    /// client's address, the second the server's
    #[arg(short = 'N', long, value_name = "MAP", help_heading = "Network")]
    pnat: Vec<AddressMap>,
    /// Map source addresses only
    #[arg(short = 'S', long, value_name = "MAP", help_heading = "Network")]
    srcipmap: Option<AddressMap>,
    /// Map destination addresses only
    #[arg(short = 'D', long, value_name = "MAP", help_heading = "Network")]
    dstipmap: Option<AddressMap>,
    /// Set the addresses of all clients and of all servers: 10.0.0.1:10.0.0.2, [fd00::1]:[fd00::2]
    #[arg(short = 'e', long, value_name = "IP:IP", help_heading = "Network")]
    endpoints: Option<Endpoints>,
    /// Replace IP addresses with random ones of the same kind, each always with the same one
    #[arg(short = 's', long, value_name = "SEED", help_heading = "Network")]
    seed: Option<u64>,
    /// Replace IP addresses and preserve prefixes (Crypto-PAn); the key is made from any text, or
    /// is 64 hexadecimal digits
    #[arg(long, value_name = "SEED|KEY", help_heading = "Network")]
    anonymize: Option<Key>,
    /// Do not change multicast and broadcast IP addresses
    #[arg(short = 'b', long, visible_alias = "skip-broadcast", help_heading = "Network")]
    skipbroadcast: bool,
    /// Set the TTL or hop limit to a number, or change it: --ttl=+7, --ttl=-64
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = "Network")]
    ttl: Option<Ttl>,
    /// Set the TOS octet of IPv4 (DSCP and ECN)
    #[arg(long, value_name = "0-255", help_heading = "Network")]
    tos: Option<u8>,
    /// Set the traffic class of IPv6
    #[arg(long, value_name = "0-255", help_heading = "Network")]
    tclass: Option<u8>,
    /// Set the flow label of IPv6
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=0xf_ffff), help_heading = "Network")]
    flowlabel: Option<u32>,

    /// Map TCP and UDP ports: 80:8080, 8000-8999:80, 1-10:11-20; repeatable
    #[arg(short = 'r', long, value_name = "MAP", help_heading = "Transport")]
    portmap: Vec<PortMap>,
    /// Shift TCP sequence and acknowledgment numbers, by a separate amount for each direction of a
    /// connection
    #[arg(long, value_name = "SEED", help_heading = "Transport")]
    tcp_sequence: Option<u64>,
    /// Recompute the checksums of IPv4, TCP, UDP, ICMP, IGMP and ICMPv6
    #[arg(short = 'C', long, help_heading = "Transport")]
    fixcsum: bool,
    /// Change some packets at random: drop or shorten them, or overwrite octets of the payload
    #[arg(long, value_name = "SEED", help_heading = "Transport")]
    fuzz_seed: Option<u64>,
    /// Change one of N packets [default: 8]
    #[arg(long, value_name = "N", requires = "fuzz_seed", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Transport")]
    fuzz_factor: Option<u32>,

    /// Repair packets that are shorter than their IP header states: pad (with zeros), trunc
    /// (correct the header), del (drop the packet)
    #[arg(short = 'F', long, value_name = "pad|trunc|del", help_heading = "Length")]
    fixlen: Option<FixLen>,
    /// Limit IP packets to this many octets, for --mtu-trunc and --fixlen pad [default: 1500]
    #[arg(short = 'm', long, value_name = "OCTETS", help_heading = "Length")]
    mtu: Option<u32>,
    /// Truncate IP packets to the MTU
    #[arg(long, help_heading = "Length")]
    mtu_trunc: bool,
    /// Truncate frames to this many octets (without FCS), and correct IP's lengths
    #[arg(long, value_name = "OCTETS", help_heading = "Length")]
    truncate: Option<u32>,
    /// Pad frames with zeros to this many octets (without FCS): 60 is Ethernet's minimum
    #[arg(long, value_name = "OCTETS", help_heading = "Length")]
    pad: Option<u32>,
    /// Pad truncated packets with zeros to their length on the wire
    #[arg(long, help_heading = "Length")]
    unfold: bool,
    /// Keep at most this many octets of each packet; its length on the wire stays
    #[arg(long, value_name = "OCTETS", help_heading = "Length")]
    snaplen: Option<u32>,
    /// Fragment IP packets that are longer than MTU, even if they forbid it (DF)
    #[arg(long, value_name = "MTU", help_heading = "Length")]
    fragment: Option<u32>,
}

#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Selection and time")]
struct SelectArgs {
    /// Read from FILE, a cache of squall prep or tcpprep, whether the client (primary) or the
    /// server sends each packet. Packets that it skips remain unchanged [default: determined from
    /// the packets where needed]
    #[arg(short, long, value_name = "FILE")]
    cachefile: Option<PathBuf>,
    /// Keep only packets with these numbers: 1-5,9,100-
    #[arg(long, value_name = "LIST")]
    packets: Option<Numbers>,
    /// Keep only packets from this time on: +10s after the first, 2026-11-22T10:00:00Z, or seconds
    /// since 1970
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    from: Option<When>,
    /// Keep only packets until this time
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    to: Option<When>,
    /// Drop a packet that equals one of the N - 1 packets before it [default: 5]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "5", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    dedup: Option<u32>,
    /// Shift all times: 1h, -30s
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_shift)]
    time_shift: Option<i64>,
    /// Stretch times from the first packet on: 2 is half as fast, 0.5 twice as fast
    #[arg(long, value_name = "FACTOR")]
    time_scale: Option<Factor>,
}

#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Several files")]
struct SeveralArgs {
    /// Merge the files in order of time, instead of one after the other
    #[arg(long)]
    merge: bool,
    /// Start a new file after N packets: OUT-00001.pcap, OUT-00002.pcap ...
    #[arg(long, value_name = "N", value_parser = at_least_one, conflicts_with_all = ["split_time", "split_flows"])]
    split_count: Option<u64>,
    /// Start a new file each time TIME has passed, by the time of the packets
    #[arg(long, value_name = "TIME", conflicts_with = "split_flows")]
    split_time: Option<Nanos>,
    /// Write a file for each conversation: addresses, protocol and ports, both directions
    #[arg(long)]
    split_flows: bool,
}

fn at_least_one(text: &str) -> Result<u64, String> {
    match parse_count(text) {
        Ok(0) => Err("expected 1 or more".into()),
        Ok(count) => Ok(count),
        Err(error) => Err(error.to_string()),
    }
}

impl EditArgs {
    pub fn edits(&self) -> Edits {
        let all_ports =
            || PortMap(self.portmap.iter().flat_map(|map| map.0.iter().cloned()).collect());
        Edits {
            enet_dmac: self.enet_dmac,
            enet_smac: self.enet_smac,
            enet_subsmac: self.enet_subsmac.clone(),
            enet_mac_seed: self.enet_mac_seed,
            enet_mac_seed_keep_bytes: self.enet_mac_seed_keep_bytes.unwrap_or(0),
            skip_l2_broadcast: self.skipl2broadcast,
            vlan: self.enet_vlan.map(|mode| Vlan {
                mode,
                tag: self.enet_vlan_tag,
                cfi: self.enet_vlan_cfi,
                pri: self.enet_vlan_pri,
                service: self.enet_vlan_proto == "802.1ad",
            }),
            dlt: self.dlt,
            efcs: self.efcs,
            pnat: self.pnat.clone(),
            srcipmap: self.srcipmap.clone(),
            dstipmap: self.dstipmap.clone(),
            endpoints: self.endpoints,
            seed: self.seed,
            anonymize: self.anonymize,
            skip_broadcast: self.skipbroadcast,
            ttl: self.ttl,
            tos: self.tos,
            tclass: self.tclass,
            flowlabel: self.flowlabel,
            portmap: (!self.portmap.is_empty()).then(all_ports),
            tcp_sequence: self.tcp_sequence,
            fixcsum: self.fixcsum,
            fuzz_seed: self.fuzz_seed,
            fuzz_factor: self.fuzz_factor,
            fixlen: self.fixlen,
            mtu: self.mtu,
            mtu_trunc: self.mtu_trunc,
            truncate: self.truncate,
            pad: self.pad,
            unfold: self.unfold,
            snaplen: self.snaplen,
            fragment: self.fragment,
            ..Edits::default()
        }
    }
}

impl Args {
    fn settings(&self) -> Settings {
        let SelectArgs { cachefile: cache, packets, from, to, dedup, time_shift, time_scale } =
            self.select.clone();
        let time_shift_ns = time_shift.unwrap_or(0);
        let edits =
            Edits { packets, from, to, dedup, time_shift_ns, time_scale, ..self.edits.edits() };
        let split = match (self.several.split_count, self.several.split_time) {
            (Some(count), _) => Some(Split::Count(count)),
            (None, Some(time)) => Some(Split::Time(time.0.max(1))),
            (None, None) => self.several.split_flows.then_some(Split::Flows),
        };
        let permit = if self.force { Permit::FORCE } else { Permit::default() };
        Settings { edits, merge: self.several.merge, split, cache, permit }
    }
}

pub fn edit(args: &Args) -> Result<ExitCode, Error> {
    let named: Vec<PathBuf> = args.infile.iter().chain(&args.outfile).cloned().collect();
    let files = if named.is_empty() { &args.files } else { &named };
    let (out, inputs) = files.split_last().expect("clap wants two files at least");
    let to_stdout = args.json.as_deref() == Some("-");
    let packets_out = out.as_os_str() == "-";
    if to_stdout && out.as_os_str() == "-" {
        return Err(Error::Usage(
            "standard output takes packets or the summary, not both\n  try --json FILE".into(),
        ));
    }
    let signals = Signals::catch()?;
    // Create the file before the work starts, which may take hours.
    let json = args.json.as_deref().filter(|name| *name != "-").map(output::create).transpose()?;
    let mut line = ProgressLine::new(args.quiet);
    let edited = edit_captures(inputs, out, &args.settings(), |progress| {
        let seconds = line.began().elapsed().as_secs_f64();
        line.update(|| so_far(progress, seconds));
        !signals.came()
    });
    line.clear();
    let edited = Edited { command: command_line(), ..edited? };
    let mut results = Results::default();
    results.write(json, || edited.to_json() + "\n");
    let to_stdout = to_stdout || (results.are_lost() && !packets_out);
    if !args.quiet {
        let text = summary(&edited);
        if to_stdout || packets_out {
            eprint!("{text}");
        } else {
            output::print(&text);
        }
    }
    if to_stdout {
        output::print_data(&(edited.to_json() + "\n"));
    } else if results.are_lost() {
        eprint!("{}\n", edited.to_json());
    }
    let mut faulty = false;
    for input in &edited.inputs {
        if let Some(fault) = &input.fault {
            eprintln!(
                "squall: {} at octet {}, after packet {}: {}",
                input.path, fault.offset, input.packets, fault.text
            );
            faulty = true;
        }
    }
    edited.error.iter().for_each(|error| eprintln!("squall: {error}"));
    results.end()?;
    if edited.error.is_some() {
        return Ok(ExitCode::from(3));
    }
    Ok(match (edited.stopped, faulty) {
        // The exit status of a shell after Ctrl-C, because the output is incomplete.
        (true, _) => ExitCode::from(130),
        (false, faulty) => ExitCode::from(if faulty { 2 } else { 0 }),
    })
}

fn summary(edited: &Edited) -> String {
    let mut rows = vec![
        ("Packets read", human::count(edited.packets_read)),
        ("Packets written", human::count(edited.packets_written)),
        ("Packets changed", human::count(edited.packets_changed)),
        ("Packets dropped", human::count(edited.packets_dropped)),
    ];
    let by = |done: &squall_offline::edit::Done| match (done.changed, done.dropped) {
        (changed, 0) => human::count(changed),
        (0, dropped) => format!("{} dropped", human::count(dropped)),
        (changed, dropped) => {
            format!("{}, {} dropped", human::count(changed), human::count(dropped))
        }
    };
    let names: Vec<String> =
        edited.operations.iter().map(|done| format!("  {}", done.operation)).collect();
    rows.extend(names.iter().zip(&edited.operations).map(|(name, done)| (name.as_str(), by(done))));
    let files = edited.outputs.len() as u64 + edited.more_outputs;
    if files > 1 {
        rows.push(("Files written", human::count(files)));
    }
    let mut text: String =
        rows.iter().map(|(name, value)| format!("{name:<18} {value}\n")).collect();
    for not_done in &edited.not_done {
        text +=
            &format!("note: {}: {}\n", human::counted(not_done.packets, "packet"), not_done.reason);
    }
    edited.notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    if edited.stopped {
        text += "note: stopped; all packets read until then are written\n";
    }
    text
}

/// Describes the progress `seconds` after the start.
fn so_far(progress: &Progress, seconds: f64) -> String {
    let rate = progress.octets as f64 / seconds;
    let mut text = format!(
        "{} packets, {}",
        human::short_count(progress.packets),
        human::si(progress.octets as f64, "B")
    );
    if let Some(all) = progress.all_octets.filter(|all| *all >= progress.octets) {
        let left = (all - progress.octets) as f64 / rate.max(1.0);
        text +=
            &format!(" of {}, {} left", human::si(all as f64, "B"), human::seconds(left.ceil()));
    }
    text + &format!(", {}", human::si(rate, "B/s"))
}
