//! Assigns streams, replays and flows to workers.

use std::collections::BTreeMap;

use squall_profile::{Late, Stop};
use squall_units::FCS_LEN;

use crate::{Cpu, Placement, PlanPort, PlanStream, PlanWorker, PortLimits, StreamDivision};

/// The sources other than streams, and the number of workers.
#[derive(Clone)]
pub(crate) struct Wanted<'a> {
    /// As in [`crate::Options`].
    pub cores: Option<usize>,
    pub cpus: usize,
    pub pin: Option<&'a [Cpu]>,
    /// Ports of each replay.
    pub replays: Vec<&'a [usize]>,
    /// Ports that flows are played on.
    pub flows: Vec<usize>,
    /// Ports that have hosts or routers. One worker has all of them.
    pub hosts: Vec<usize>,
    /// The flows are conversations in a script, whose order only a single worker can keep.
    pub scripted: bool,
    /// Some parts wait for other parts.
    pub chained: bool,
}

/// Creates workers with their queues, then assigns each stream to workers.
pub(crate) fn place(
    ports: &[PlanPort],
    limits: &[PortLimits],
    streams: &mut [PlanStream],
    stop: &Stop,
    options: &Wanted<'_>,
    notes: &mut Vec<String>,
) -> (Vec<PlanWorker>, bool) {
    let tied = tied(ports, limits, streams, stop, options);
    let of_others = |port: &usize| !tied.contains(port);
    let sends: Vec<bool> =
        (0..ports.len()).map(|port| options.sources_of(port, streams) > 0).collect();
    let left = |workers: usize| workers.saturating_sub(usize::from(!tied.is_empty())).max(1);
    let rest = Wanted {
        cores: options.cores.map(left),
        cpus: left(options.cpus),
        replays: options
            .replays
            .iter()
            .copied()
            .filter(|ports| ports.iter().all(of_others))
            .collect(),
        flows: options.flows.iter().copied().filter(of_others).collect(),
        ..options.clone()
    };
    let (mut workers, mut divided) = (Vec::new(), false);
    let alone = |port: usize| of_others(&port) && (limits[port].rx_queues > 0 || sends[port]);
    if tied.is_empty() || (0..ports.len()).any(alone) {
        (workers, divided) = place_untied(ports, limits, streams, stop, &rest, &tied, notes);
    }
    if !tied.is_empty() {
        for stream in streams.iter_mut().filter(|stream| tied.contains(&stream.port)) {
            stream.placement = Placement::Worker(workers.len());
        }
        let queues = |port: usize| match limits[port].paired_queues {
            true => limits[port].rx_queues.min(1),
            false => limits[port].rx_queues,
        };
        workers.push(PlanWorker {
            tx: tied.iter().filter(|&&port| sends[port]).map(|&port| (port, 0)).collect(),
            rx: tied.iter().flat_map(|&p| (0..queues(p)).map(move |queue| (p, queue))).collect(),
            cpu: None,
        });
        if options.cores.is_some_and(|cores| cores > workers.len()) {
            let names: Vec<_> = tied.iter().map(|&port| ports[port].name.as_str()).collect();
            notes.push(format!(
                "several sources, or hosts, send on ports {}: one worker sends all of them",
                names.join(", ")
            ));
        }
    }
    (bound(workers, limits, options, notes), divided)
}

/// Number of sources that send through `port`: its streams, each replay, and flows.
pub(crate) fn sources_of<'a>(
    port: usize,
    streams: &[PlanStream],
    replays: impl Iterator<Item = &'a [usize]>,
    flows: bool,
) -> usize {
    let streams = sends_streams(port, streams);
    let replays = replays.filter(|ports| ports.contains(&port)).count();
    usize::from(streams) + replays + usize::from(flows)
}

/// Whether streams are sent through `port`, including those of other parts.
fn sends_streams(port: usize, streams: &[PlanStream]) -> bool {
    let here = |stream: &PlanStream| stream.division != StreamDivision::Elsewhere;
    streams.iter().any(|stream| stream.port == port && here(stream))
}

impl Wanted<'_> {
    fn sources_of(&self, port: usize, streams: &[PlanStream]) -> usize {
        let others = usize::from(self.hosts.contains(&port));
        sources_of(port, streams, self.replays.iter().copied(), self.flows.contains(&port)) + others
    }
}

/// Ports that must share one worker: those with several sources (streams, captures, flows) or with
/// hosts, and those on which these depend.
fn tied(
    ports: &[PlanPort],
    limits: &[PortLimits],
    streams: &[PlanStream],
    stop: &Stop,
    options: &Wanted<'_>,
) -> Vec<usize> {
    let sources = |port: usize| options.sources_of(port, streams);
    let virtual_time = limits.iter().any(|limit| limit.virtual_time);
    let shared = |port: &usize| sources(*port) > 1 || options.hosts.contains(port);
    let mut tied: Vec<usize> = (0..ports.len()).filter(shared).collect();
    if tied.is_empty() {
        // Workers on virtual time do not see each other's clocks, so all ports in use share one.
        let used = |port: &usize| sources(*port) > 0 || limits[*port].rx_queues > 0;
        return match options.chained && virtual_time {
            true => (0..ports.len()).filter(used).collect(),
            false => tied,
        };
    }
    // An exact total and a common virtual time both need a single worker.
    let counted = stop.packets.is_some() || stop.octets.is_some();
    let one = counted || options.cores == Some(1) || virtual_time;
    // A replay's frames are sent in order, even if they go to several ports.
    let replays = options.replays.iter().filter(|ports| ports.iter().any(|p| tied.contains(p)));
    let replayed: Vec<usize> = replays.copied().flatten().copied().collect();
    // Frames sent on queue i arrive on queue i of the other end, so that queue must be open.
    let pairs = tied.iter().any(|&port| limits[port].paired_queues);
    let with = |port: &usize| {
        let used = sources(*port) > 0 || limits[*port].rx_queues > 0;
        used && (one || (pairs && limits[*port].paired_queues))
    };
    tied.extend(replayed);
    tied.extend((0..ports.len()).filter(with));
    tied.sort_unstable();
    tied.dedup();
    tied
}

/// Like [`place`], for ports that are not `tied`.
fn place_untied(
    ports: &[PlanPort],
    limits: &[PortLimits],
    streams: &mut [PlanStream],
    stop: &Stop,
    options: &Wanted<'_>,
    tied: &[usize],
    notes: &mut Vec<String>,
) -> (Vec<PlanWorker>, bool) {
    let sending: Vec<usize> = (0..ports.len())
        .filter(|port| !tied.contains(port) && sends_streams(*port, streams))
        .collect();
    let none = sending.is_empty();
    let players = if options.flows.is_empty() {
        Vec::new()
    } else {
        place_flows(limits, none && options.replays.is_empty(), options, notes)
    };
    let receiving: Vec<usize> = (0..ports.len())
        .filter(|p| !tied.contains(p))
        .filter(|&p| limits[p].rx_queues > 0 && !options.flows.contains(&p))
        .collect();
    if !players.is_empty() && none && options.replays.is_empty() && receiving.is_empty() {
        return (players, false);
    }
    // The CPUs that are not used for flows.
    let cores = options.cores.map(|cores| cores.saturating_sub(players.len()).max(1));
    let cpus = options.cpus.saturating_sub(players.len()).max(1);
    // A total over all streams is exact, and the same on any machine, only if a single worker
    // sends.
    let mut counted = stop.packets.is_some() || stop.octets.is_some();
    let mut divided = false;
    if counted && cores.is_some_and(|c| c > 1) && options.replays.is_empty() {
        match cut(streams, stop) {
            Ok(()) => (counted, divided) = (false, true),
            Err(why) => {
                notes.push(format!("packets or octets end the run, and {why}: one core sends"))
            }
        }
    }
    let extra = usize::from(!receiving.is_empty());
    let count = match cores {
        Some(n) => n,
        None if counted => 1 + extra,
        None => sending.len() + options.replays.len() + extra,
    };
    let count = count.min(cores.unwrap_or(cpus)).max(1);
    let mut workers = vec![PlanWorker::default(); count];
    // By default, there is one worker per port; a further one only receives.
    let senders = match cores {
        _ if counted => 1,
        Some(n) => n.max(1),
        None => sending.len().clamp(1, count),
    };
    for (i, &port) in sending.iter().enumerate() {
        let serving = (0..senders).filter(|w| {
            if senders >= sending.len() { w % sending.len() == i } else { i % senders == *w }
        });
        for (queue, w) in serving.take(limits[port].tx_queues.max(1) as usize).enumerate() {
            workers[w].tx.push((port, queue as u32));
        }
    }
    // Each replay has one worker, which keeps the order of its frames across ports.
    for (i, ports) in options.replays.iter().enumerate() {
        // Workers after those of streams, if there are any.
        let others = count.saturating_sub(sending.len());
        let replayer = match others {
            _ if counted => 0,
            0 => i % count,
            _ => sending.len() + i % others.saturating_sub(extra).max(1),
        };
        workers[replayer].tx.extend(ports.iter().map(|&port| (port, 0)));
    }
    // Receiving ports go to workers that only receive, if there are any. Otherwise a port is
    // received on the worker that sends on it, so a loop's frames stay on one core.
    let idle: Vec<usize> = (0..count).filter(|&w| workers[w].tx.is_empty()).collect();
    for (i, &port) in receiving.iter().enumerate() {
        let paired = workers.iter().flat_map(|w| &w.tx).map(|t| t.1 + 1).max().unwrap_or(1);
        let queues = if limits[port].paired_queues {
            limits[port].rx_queues.min(paired)
        } else {
            limits[port].rx_queues
        };
        let replayed: Vec<usize> =
            (0..count).filter(|&w| workers[w].tx.iter().any(|t| t.0 == port)).collect();
        let listeners = match (&idle[..], &replayed[..]) {
            ([], []) => (0..count).collect(),
            ([], replayed) => replayed.to_vec(),
            (idle, _) => idle.to_vec(),
        };
        // Distribute ports that have one queue each. Otherwise all would be on the first worker.
        let first = if idle.is_empty() && (limits[port].paired_queues || !replayed.is_empty()) {
            0
        } else {
            i
        };
        let measured =
            streams.is_empty() || streams.iter().any(|s| s.program.signature().is_some());
        if queues > 1 && measured {
            notes.push(format!(
                "port {} receives on {queues} queues: order, gaps and IPDV are measured within \
                 each queue, loss and duplicates over all",
                ports[port].name
            ));
        }
        for queue in 0..queues {
            workers[listeners[(first + queue as usize) % listeners.len()]].rx.push((port, queue));
        }
    }
    for port in sending {
        let servers: Vec<usize> =
            (0..count).filter(|&w| workers[w].tx.iter().any(|t| t.0 == port)).collect();
        spread(streams, port, &servers, notes);
    }
    workers.extend(players);
    (workers, divided)
}

/// Pins workers to CPUs, if there are enough.
fn bound(
    mut workers: Vec<PlanWorker>,
    limits: &[PortLimits],
    options: &Wanted<'_>,
    notes: &mut Vec<String>,
) -> Vec<PlanWorker> {
    if let Some(cpus) = options.pin {
        // If the user did not choose the number of workers, a note would not help.
        let bound = pin(&mut workers, limits, cpus);
        if !bound && options.cores.is_some() {
            let (count, cpus) = (workers.len(), cpus.len());
            notes.push(format!("workers are not bound to CPUs: {count} workers, {cpus} free CPUs"));
        }
        notes.extend(far(&workers, limits, cpus));
    }
    workers
}

/// Notes on workers whose CPU is not on the NUMA node of their port's device, one for each two nodes.
/// Queues and memory of a worker are on the node of its CPU, so that their frames cross between the
/// nodes.
fn far(workers: &[PlanWorker], limits: &[PortLimits], cpus: &[Cpu]) -> Vec<String> {
    let far = |worker: &PlanWorker| {
        let (cpu, device) = (worker.cpu?, device_node(worker, limits)?);
        let node = cpus.iter().find(|one| one.number == cpu)?.node;
        (node != device).then_some((cpu, node, device))
    };
    let mut by_nodes = BTreeMap::<_, Vec<String>>::new();
    for (cpu, node, device) in workers.iter().filter_map(far) {
        by_nodes.entry((node, device)).or_default().push(cpu.to_string());
    }
    let note = |((node, device), list): ((u32, u32), Vec<String>)| {
        format!(
            "CPU {} is on NUMA node {node}, the device of its port on node {device}: frames cross \
             between the nodes; try --cpus with CPUs of node {device} (squall doctor --nic)",
            list.join(", ")
        )
    };
    by_nodes.into_iter().map(note).collect()
}

/// The NUMA node of the device of a worker's first port that has one.
fn device_node(worker: &PlanWorker, limits: &[PortLimits]) -> Option<u32> {
    worker.tx.iter().chain(&worker.rx).find_map(|&(port, _)| limits[port].node)
}

/// Assigns flows to workers. Flows are received on the worker that sends them. With paired queues,
/// frames sent on queue i arrive on queue i of the other end, so each worker has a queue of every
/// port, and its share of the flows. Other ports have their own workers, each with a receive queue.
/// Streams on the same ports have separate workers, because these spin until the next frame is due,
/// while workers of flows sleep until a frame arrives.
fn place_flows(
    limits: &[PortLimits],
    alone: bool,
    options: &Wanted<'_>,
    notes: &mut Vec<String>,
) -> Vec<PlanWorker> {
    let of = |&port: &usize| &limits[port];
    let paired = options.flows.iter().all(|port| of(port).paired_queues);
    let queues = |port: &usize| of(port).tx_queues.min(of(port).rx_queues).max(1);
    let cores = options.cores.map(|cores| if alone { cores } else { (cores / 2).max(1) });
    if options.cores == Some(1) && !alone {
        notes.push("flows and streams have separate workers: the run has 2".into());
    }
    let ports = options.flows.len();
    let wanted = cores.unwrap_or(match (paired, alone) {
        (true, _) => 1,
        (false, true) => options.cpus.min(ports),
        (false, false) => options.cpus.saturating_sub(1).min(ports),
    });
    let mut workers = Vec::new();
    if paired {
        let most = options.flows.iter().map(queues).min().unwrap_or(1) as usize;
        workers = vec![PlanWorker::default(); wanted.min(most).max(1)];
        for port in &options.flows {
            for (queue, worker) in (0..).zip(&mut workers) {
                worker.tx.push((*port, queue));
                worker.rx.push((*port, queue));
            }
        }
    } else if wanted < ports {
        workers = vec![PlanWorker::default(); wanted.max(1)];
        // Neighbors share a worker: both ports of a pair, or those that have equal loads.
        for (i, port) in options.flows.iter().enumerate() {
            let worker = &mut workers[i * wanted.max(1) / ports];
            worker.tx.push((*port, 0));
            worker.rx.extend((0..of(port).rx_queues).map(|queue| (*port, queue)));
        }
    } else {
        for (i, port) in options.flows.iter().enumerate() {
            // Paired queues lead to queues of the other end, which other workers may own.
            let one = of(port).paired_queues || options.scripted;
            let most = if one { 1 } else { queues(port) as usize };
            let players = (wanted / ports + usize::from(i < wanted % ports)).min(most);
            for player in 0..players as u32 {
                let queues = (player..of(port).rx_queues).step_by(players);
                workers.push(PlanWorker {
                    tx: vec![(*port, player)],
                    rx: queues.map(|queue| (*port, queue)).collect(),
                    cpu: None,
                });
            }
        }
    }
    if cores.is_some_and(|cores| cores > workers.len()) {
        notes.push(format!(
            "flows on these ports have at most {} workers: {}",
            workers.len(),
            match options.scripted {
                true => "conversations of a capture keep their order on one worker",
                false => "each needs a receiving queue",
            }
        ));
    }
    workers
}

/// Converts a total of packets or octets to the length of the only stream. The error is the reason
/// why that is impossible.
pub(crate) fn cut(streams: &mut [PlanStream], stop: &Stop) -> Result<(), &'static str> {
    let [stream] = streams else {
        return Err("only one core knows which stream sends the last frame");
    };
    if stream.next.is_some() || stream.pattern.bursts != 1 {
        return Err("its bursts cannot be divided");
    }
    if stream.late == Late::Drop {
        return Err("late frames that are dropped do not count");
    }
    let most = match (stop.octets, stream.program.sizes().only()) {
        (None, _) => u64::MAX,
        // The stream ends with the frame that reaches the total.
        (Some(octets), Some(len)) => octets.div_ceil(u64::from(len + FCS_LEN)),
        (Some(_), None) => return Err("its frames differ in length"),
    };
    let pattern = &mut stream.pattern;
    pattern.packets = pattern.packets.min(most).min(stop.packets.unwrap_or(u64::MAX));
    Ok(())
}

/// Assigns a CPU to each worker: on the NUMA node of its port's device if possible, and an idle
/// core rather than the sibling of a used one. Returns false and assigns none if there are too few
/// CPUs.
fn pin(workers: &mut [PlanWorker], limits: &[PortLimits], cpus: &[Cpu]) -> bool {
    if cpus.len() < workers.len() {
        return false;
    }
    let mut free: Vec<Cpu> = cpus.to_vec();
    for worker in workers.iter_mut() {
        let node = device_node(worker, limits);
        let taken =
            |cpu: &Cpu| cpus.iter().filter(|c| c.core == cpu.core && !free.contains(c)).count();
        let away = |cpu: &Cpu| node.is_some_and(|node| node != cpu.node);
        // Choose the first of several equal CPUs, because they are in order of preference.
        let best = (0..free.len()).min_by_key(|&i| (away(&free[i]), taken(&free[i])));
        let best = best.expect("there are at least as many CPUs as workers");
        worker.cpu = Some(free.remove(best).number);
    }
    true
}

/// For each stream, the first stream of its chain of `next`, and whether it is in a chain.
pub(crate) fn chains(streams: &[PlanStream]) -> (Vec<usize>, Vec<bool>) {
    let mut linked = vec![false; streams.len()];
    let mut chain: Vec<usize> = (0..streams.len()).collect();
    for (i, stream) in streams.iter().enumerate() {
        let Some(next) = stream.next else { continue };
        (linked[i], linked[next.stream]) = (true, true);
        let (a, b) = (first_of(&mut chain, i), first_of(&mut chain, next.stream));
        chain[a.max(b)] = a.min(b);
    }
    for i in 0..chain.len() {
        chain[i] = first_of(&mut chain, i);
    }
    (chain, linked)
}

/// The first stream of the chain of stream `i`. Each entry of `chain` is an earlier stream of the
/// same chain, or the stream itself.
fn first_of(chain: &mut [usize], mut i: usize) -> usize {
    while chain[i] != i {
        // Halves the way for later searches. Without that, a hundred thousand streams in a chain
        // take quadratic time.
        chain[i] = chain[chain[i]];
        i = chain[i];
    }
    i
}

/// Distributes the streams of `port` over its `servers`. Large streams are shared by all; others go
/// to the least loaded worker. Streams linked by `next` stay together, because one starts when
/// another ends.
fn spread(streams: &mut [PlanStream], port: usize, servers: &[usize], notes: &mut Vec<String>) {
    let (chain, linked) = chains(streams);
    let load = |s: &PlanStream| s.asked_pps.unwrap_or(f64::INFINITY);
    let share =
        streams.iter().filter(|s| s.port == port).map(load).sum::<f64>() / servers.len() as f64;
    let mut busy = vec![0.0f64; servers.len()];
    let mut home = vec![None; streams.len()];
    let mut order: Vec<usize> = (0..streams.len()).filter(|&i| streams[i].port == port).collect();
    order.sort_by(|&a, &b| load(&streams[b]).total_cmp(&load(&streams[a])).then(a.cmp(&b)));
    for i in order {
        let divisible = streams[i].pattern.bursts == 1 && !linked[i];
        if servers.len() > 1 && divisible && load(&streams[i]) >= share {
            streams[i].placement = Placement::Shared;
            if streams[i].program.signature().is_some() {
                notes.push(format!(
                    "stream {:?} is sent by {} workers, which do not keep a common order: expect \
                     reordering",
                    streams[i].name,
                    servers.len()
                ));
            }
            continue;
        }
        let least = || (0..servers.len()).min_by(|&a, &b| busy[a].total_cmp(&busy[b])).unwrap_or(0);
        let at = *home[chain[i]].get_or_insert_with(least);
        busy[at] += load(&streams[i]);
        streams[i].placement = Placement::Worker(servers[at]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(node: Option<u32>, rx_queues: u32, paired_queues: bool) -> PortLimits {
        PortLimits {
            max_frame: 1514,
            mac: None,
            speed_bps: None,
            tx_queues: 64,
            rx_queues,
            paired_queues,
            node,
            virtual_time: false,
            segmentation: squall_units::Segmentation::Engine,
            elsewhere: false,
        }
    }

    fn cpus_of(workers: usize, node: Option<u32>, cpus: &[Cpu]) -> Vec<Option<u32>> {
        let mut list = vec![PlanWorker { tx: vec![(0, 0)], ..PlanWorker::default() }; workers];
        assert_eq!(pin(&mut list, &[limits(node, 1, false)], cpus), cpus.len() >= workers);
        list.iter().map(|w| w.cpu).collect()
    }

    /// Two nodes with two cores each and two CPUs per core, numbered as on most machines: siblings
    /// are 4 apart.
    fn machine() -> Vec<Cpu> {
        (0..8).map(|number| Cpu { number, core: number % 4, node: number % 4 / 2 }).collect()
    }

    #[test]
    fn workers_get_cores_of_their_own_before_siblings_and_the_node_of_the_device_first() {
        let some = |list: &[u32]| list.iter().copied().map(Some).collect::<Vec<_>>();
        assert_eq!(cpus_of(4, None, &machine()), some(&[0, 1, 2, 3]));
        assert_eq!(cpus_of(6, None, &machine()), some(&[0, 1, 2, 3, 4, 5]));
        // The two cores of the device's node, then their siblings, then the other node.
        assert_eq!(cpus_of(5, Some(1), &machine()), some(&[2, 3, 6, 7, 0]));
    }

    #[test]
    fn a_worker_away_from_the_device_of_its_port_is_noted() {
        let note = |workers: usize, cpus: &[Cpu]| {
            let mut list = vec![PlanWorker { tx: vec![(0, 0)], ..PlanWorker::default() }; workers];
            let limits = [limits(Some(1), 1, false)];
            assert!(pin(&mut list, &limits, cpus));
            far(&list, &limits, cpus)
        };
        assert!(note(4, &machine()).is_empty(), "node 1 has four CPUs");
        let one = &note(5, &machine())[0];
        assert!(one.starts_with("CPU 0 is on NUMA node 0") && one.contains("node 1:"), "{one}");
        let two = &note(2, &machine()[..2])[0];
        assert!(two.starts_with("CPU 0, 1 is on"), "{two}");
    }

    #[test]
    fn more_workers_than_cpus_are_not_bound() {
        assert_eq!(cpus_of(3, None, &machine()[..2]), [None; 3]);
    }

    /// The workers that play flows: their transmit and receive queues.
    fn players(
        limits: &[PortLimits],
        ports: &[usize],
        cores: Option<usize>,
    ) -> (Vec<PlanWorker>, Vec<String>) {
        let options = Wanted {
            chained: false,
            cores,
            cpus: 8,
            pin: None,
            replays: Vec::new(),
            flows: ports.to_vec(),
            hosts: Vec::new(),
            scripted: false,
        };
        let mut notes = Vec::new();
        (place_flows(limits, true, &options, &mut notes), notes)
    }

    #[test]
    fn flows_of_a_port_have_as_many_workers_as_it_has_queues() {
        let of = |worker: &PlanWorker| (worker.tx.clone(), worker.rx.clone());
        let one = [limits(None, 2, false)];
        let (workers, notes) = players(&one, &[0], Some(2));
        assert_eq!(
            workers.iter().map(of).collect::<Vec<_>>(),
            [(vec![(0, 0)], vec![(0, 0)]), (vec![(0, 1)], vec![(0, 1)])]
        );
        assert!(notes.is_empty());
        // Every worker has a queue, and every queue has a worker.
        let (workers, notes) = players(&one, &[0], Some(3));
        assert_eq!(workers.len(), 2);
        assert!(notes[0].contains("at most 2 workers"), "{notes:?}");
        let (workers, _) = players(&[limits(None, 5, false)], &[0], Some(2));
        assert_eq!(
            workers.iter().map(|worker| worker.rx.len()).collect::<Vec<_>>(),
            [3, 2],
            "{workers:?}"
        );
        // By default, there is one worker per port.
        assert_eq!(players(&one, &[0], None).0.len(), 1);
    }

    #[test]
    fn workers_are_divided_among_ports_of_flows() {
        let two = [limits(None, 4, false), limits(None, 4, false)];
        let ports = |cores| -> Vec<Vec<usize>> {
            let (workers, _) = players(&two, &[0, 1], cores);
            let sent = |worker: &PlanWorker| worker.tx.iter().map(|tx| tx.0).collect();
            workers.iter().map(sent).collect()
        };
        assert_eq!(ports(Some(1)), [[0, 1]]);
        assert_eq!(ports(None), [[0], [1]]);
        assert_eq!(ports(Some(3)), [[0], [0], [1]]);
        // Paired queues lead to the same queue of the other end.
        let loops = [limits(None, 64, true), limits(None, 64, true)];
        let (workers, _) = players(&loops, &[0, 1], Some(2));
        let of = |worker: &PlanWorker| (worker.tx.clone(), worker.rx.clone());
        let both = |queue| (vec![(0, queue), (1, queue)], vec![(0, queue), (1, queue)]);
        assert_eq!(workers.iter().map(of).collect::<Vec<_>>(), [both(0), both(1)]);
    }
}
