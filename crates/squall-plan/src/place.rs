//! Which worker does what.

use squall_profile::Stop;

use crate::{Options, Placement, PlanPort, PlanStream, PlanWorker, PortLimits};

/// Workers with their queues; then every stream finds its place.
pub(crate) fn place(
    ports: &[PlanPort],
    limits: &[PortLimits],
    streams: &mut [PlanStream],
    stop: &Stop,
    options: &Options,
    notes: &mut Vec<String>,
) -> Vec<PlanWorker> {
    let sending: Vec<usize> = (0..ports.len()).filter(|&p| streams.iter().any(|s| s.port == p)).collect();
    let receiving: Vec<usize> = (0..ports.len()).filter(|&p| limits[p].rx_queues > 0).collect();
    // A total over all streams is exact, and the same on any machine, only when one worker counts.
    let counted = stop.packets.is_some() || stop.octets.is_some();
    if counted && options.cores.is_some_and(|c| c > 1) {
        notes.push("packets or octets stop the run: one core sends".into());
    }
    let extra = usize::from(!receiving.is_empty());
    let count = match options.cores {
        Some(n) => n,
        None if counted => 1 + extra,
        None => sending.len() + extra,
    };
    let count = count.min(options.cores.unwrap_or(options.cpus)).max(1);
    let mut workers = vec![PlanWorker::default(); count];
    // Unless the number was asked for, a worker beyond one a port only receives.
    let senders = match options.cores {
        _ if counted => 1,
        Some(n) => n.max(1),
        None => sending.len().clamp(1, count),
    };
    for (i, &port) in sending.iter().enumerate() {
        let serving =
            (0..senders).filter(|w| if senders >= sending.len() { w % sending.len() == i } else { i % senders == *w });
        for (queue, w) in serving.take(limits[port].tx_queues.max(1) as usize).enumerate() {
            workers[w].tx.push((port, queue as u32));
        }
    }
    // What queue i of a loop sends arrives in queue i: nobody may listen to fewer queues than are sent to.
    let sent_to = workers.iter().flat_map(|w| &w.tx).map(|t| t.1 + 1).max().unwrap_or(1);
    for (i, &port) in receiving.iter().enumerate() {
        // On one worker for now: spread over several, the streams' trackers would have to be merged frame by frame.
        let queues = (0..limits[port].rx_queues.min(sent_to)).map(|queue| (port, queue));
        workers[count - 1 - i % count].rx.extend(queues);
    }
    for port in sending {
        let servers: Vec<usize> = (0..count).filter(|&w| workers[w].tx.iter().any(|t| t.0 == port)).collect();
        spread(streams, port, &servers, notes);
    }
    workers
}

/// Streams of `port` over its `servers`: those too big for one are shared, the others go where the load is least.
/// Streams linked by `next` stay together, because one starts when another ends.
fn spread(streams: &mut [PlanStream], port: usize, servers: &[usize], notes: &mut Vec<String>) {
    let mut chain: Vec<usize> = (0..streams.len()).collect();
    let mut linked = vec![false; streams.len()];
    for i in 0..streams.len() {
        if let Some(next) = streams[i].next {
            (linked[i], linked[next.stream]) = (true, true);
            let (a, b) = (chain[i], chain[next.stream]);
            chain.iter_mut().filter(|c| **c == b).for_each(|c| *c = a);
        }
    }
    let load = |s: &PlanStream| s.asked_pps.unwrap_or(f64::INFINITY);
    let share = streams.iter().filter(|s| s.port == port).map(load).sum::<f64>() / servers.len() as f64;
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
                    "stream {:?} is sent by {} workers, which keep no order among each other: expect reordering",
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
