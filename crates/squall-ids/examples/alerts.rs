//! Prints the alerts that rules raise on a capture, or compares them with those that an engine
//! recorded.
//!
//! `alerts RULES CAPTURE [--sid N]... [--without FILE] [--against RECORD.tsv] [--list]` prints sid,
//! protocol, source address and port, destination address and port, and count. With `--against`, it
//! prints recall and precision for the distinct (sid, flow) pairs in the record. `--list` shows
//! each missed or false pair; `--without` excludes the sids in a file, one per line.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::PathBuf;

use squall_ids::{Compiled, Engine, Settings};
use squall_pcap::CaptureReader;
use squall_rules::{RuleSet, Variables};
use squall_units::Nanos;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (mut files, mut sids, mut without) = (vec![], BTreeSet::new(), BTreeSet::new());
    let (mut record, mut list) = (None, false);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--sid" => {
                sids.insert(value()?.parse::<u32>()?);
            }
            "--without" => {
                without.extend(
                    std::fs::read_to_string(value()?)?
                        .lines()
                        .filter_map(|line| line.trim().parse::<u32>().ok()),
                );
            }
            "--against" => record = Some(value()?),
            "--list" => list = true,
            _ => files.push(PathBuf::from(argument)),
        }
    }
    let [rules, capture] = &files[..] else {
        return Err("alerts RULES CAPTURE [--sid N] [--against RECORD.tsv]".into());
    };

    let rules = RuleSet::read(&[rules], &Variables::standard());
    let which: Vec<usize> = (0..rules.rules.len())
        .filter(|&index| sids.is_empty() || sids.contains(&rules.rules[index].sid))
        .filter(|&index| !without.contains(&rules.rules[index].sid))
        .collect();
    let compiled = Compiled::new(&rules);
    let (mut engine, refused) = Engine::new(&compiled, &which, Settings::default());
    for refused in &refused {
        eprintln!("sid {}: {refused}", rules.rules[refused.rule].sid);
    }
    eprintln!(
        "{} rules, {} lines that are none, {} refused",
        which.len(),
        rules.problems.len(),
        refused.len()
    );
    let mut reader = CaptureReader::open(capture)?;
    while let Some(packet) = reader.next()? {
        engine.frame(Nanos(packet.time_ns), packet.data);
    }
    engine.finish();

    let mut found: BTreeMap<Pair, u64> = BTreeMap::new();
    for alert in engine.alerts() {
        let protocol = match alert.protocol {
            1 => "ICMP".into(),
            2 => "IGMP".into(),
            6 => "TCP".into(),
            17 => "UDP".into(),
            58 => "IPv6-ICMP".into(),
            other => other.to_string(),
        };
        let pair = (
            rules.rules[alert.rule].sid,
            protocol,
            alert.source.to_string(),
            alert.source_port,
            alert.destination.to_string(),
            alert.destination_port,
        );
        *found.entry(pair).or_default() += 1;
    }
    match record {
        None => {
            println!("sid\tproto\tsrc\tsport\tdst\tdport\tcount");
            for ((sid, protocol, source, source_port, destination, destination_port), count) in
                found
            {
                println!(
                    "{sid}\t{protocol}\t{source}\t{source_port}\t{destination}\t{destination_port}\t{count}"
                );
            }
        }
        Some(path) => compare(&found.into_keys().collect(), &read(&path, &sids)?, list),
    }
    Ok(())
}

type Pair = (u32, String, String, u16, String, u16);

fn read(path: &str, sids: &BTreeSet<u32>) -> Result<BTreeSet<Pair>, Box<dyn Error>> {
    let mut pairs = BTreeSet::new();
    for line in std::fs::read_to_string(path)?.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [sid, protocol, source, source_port, destination, destination_port, ..] = columns[..]
        else {
            return Err(format!("{path}: not six columns: {line}").into());
        };
        let sid = sid.parse()?;
        if sids.is_empty() || sids.contains(&sid) {
            let (source_port, destination_port) = (source_port.parse()?, destination_port.parse()?);
            pairs.insert((
                sid,
                protocol.into(),
                source.into(),
                source_port,
                destination.into(),
                destination_port,
            ));
        }
    }
    Ok(pairs)
}

fn compare(found: &BTreeSet<Pair>, recorded: &BTreeSet<Pair>, list: bool) {
    let both = found.intersection(recorded).count();
    let share = |of: usize| 100.0 * both as f64 / of.max(1) as f64;
    if list {
        for (what, pairs) in
            [("missed", recorded.difference(found)), ("false", found.difference(recorded))]
        {
            for pair in pairs {
                println!("{what}\t{pair:?}");
            }
        }
    }
    println!("recorded {} found {} both {both}", recorded.len(), found.len());
    println!("recall {:.2} % precision {:.2} %", share(recorded.len()), share(found.len()));
}
