//! One run of a generator: start, measurement of a step, end.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use squall_port_linux::{
    child::{self, CpuTime},
    interface_counters, set_gro,
};
use squall_units::Nanos;

use crate::{compared::Repeated, process::Program};

use super::{
    model::GeneratorRound,
    tools::{Fill, Generator},
    wire::Frame,
};

/// The location of a run.
pub struct Place {
    pub interfaces: [String; 2],
    pub work: PathBuf,
    pub cpu: Option<u32>,
    pub step: Nanos,
}

/// The longest wait for the first frames.
const START: Duration = Duration::from_secs(15);
/// Excludes the time in which a tool fills caches and buffers and starts its clocks.
const WARM_UP: Duration = Duration::from_millis(300);
const SECOND: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(10);
/// Time from the first interrupt to the second, and from there to the kill.
const END: Duration = Duration::from_secs(8);

impl Place {
    pub fn once(
        &self,
        tool: &Generator,
        frame: &Frame,
        pps: Option<f64>,
        stop: &dyn Fn() -> bool,
    ) -> GeneratorRound {
        self.attempt(tool, frame, pps, stop).unwrap_or_else(GeneratorRound::failure)
    }

    fn attempt(
        &self,
        tool: &Generator,
        frame: &Frame,
        pps: Option<f64>,
        stop: &dyn Fn() -> bool,
    ) -> Result<GeneratorRound, String> {
        tool.check(frame)?;
        let report = self.work.join("report.json");
        let _ = fs::remove_file(&report);
        // Only for frames from XDP, because it changes the cost of receiving. A driver without this
        // setting refuses those frames, and the tool then fails.
        let _ = set_gro(&self.interfaces[1], tool.polls());
        let time = Duration::from_nanos(self.step.0);
        let script = self.work.join("script");
        let fill = Fill {
            interface: &self.interfaces[0],
            frame,
            pps,
            // Duration for tools that end by themselves.
            seconds: (time + WARM_UP).as_secs() + 2,
            report: &report,
            script: &script,
        };
        fs::write(&script, tool.script(&fill)).map_err(|e| format!("{}: {e}", script.display()))?;
        let before = self.arrived()?;
        let receiver = tool.receiver().transpose().map_err(|e| e.to_string())?;
        let receiver = receiver
            .map(|tool| start(tool.find(), &tool.arguments, None, self.work.join("peer")))
            .transpose()?;
        if receiver.is_some() {
            std::thread::sleep(WARM_UP);
        }
        let (program, arguments) = tool.command(&fill).map_err(|e| e.to_string())?;
        let log = self.work.join("log");
        let mut started = start(program.find(), &arguments, self.cpu, log)?;
        self.wait_for_frames(&started, before, stop)?;
        let mut round = self.measure(&started, time, stop)?;
        round.peak_memory_octets = tree(started.pid()).into_iter().map(child::peak_memory).sum();
        let output = started.end(END);
        drop(receiver);
        std::thread::sleep(LOOK);
        round.arrived = self.arrived()? - before;
        round.claimed = tool.claim(&output, &report);
        round.judge();
        Ok(round)
    }

    /// The frame counter of the receiving interface.
    fn arrived(&self) -> Result<u64, String> {
        let of = &self.interfaces[1];
        interface_counters(of).map(|counters| counters.rx_packets).map_err(|e| format!("{of}: {e}"))
    }

    /// Waits for more frames than a control connection sends.
    fn wait_for_frames(
        &self,
        started: &Program,
        before: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let since = Instant::now();
        while self.arrived()? < before + 20 {
            if stop() {
                return Err("interrupted".into());
            }
            if child::has_ended(started.pid()) || since.elapsed() > START {
                return Err(format!("it sent no frames: {}", started.last_words()));
            }
            std::thread::sleep(LOOK);
        }
        std::thread::sleep(WARM_UP);
        Ok(())
    }

    /// Packet rates in each second, or in the whole step if it is shorter, and the total CPU time.
    fn measure(
        &self,
        started: &Program,
        time: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<GeneratorRound, String> {
        let (cpu0, start) = (cpu_time(started), Instant::now());
        let (mut pps, mut count, mut at) = (Vec::new(), self.arrived()?, start);
        let intervals = (time.as_secs_f64() / SECOND.as_secs_f64()).floor().max(1.0) as u32;
        for i in 1..=intervals {
            let next = start + SECOND.min(time) * i;
            while Instant::now() < next && !stop() {
                std::thread::sleep(LOOK.min(next.saturating_duration_since(Instant::now())));
            }
            // Count and time are read together, because this thread may be late.
            let (now, arrived) = (Instant::now(), self.arrived()?);
            pps.push((arrived - count) as f64 / (now - at).as_secs_f64());
            (count, at) = (arrived, now);
        }
        let (cpu, seconds) = (cpu_time(started).since(cpu0), (at - start).as_secs_f64());
        Ok(GeneratorRound {
            pps,
            user_cpus: cpu.user.as_secs_f64() / seconds,
            system_cpus: cpu.system.as_secs_f64() / seconds,
            ..GeneratorRound::default()
        })
    }
}

/// A process and its descendants.
fn tree(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(pid) = all.get(next) {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let children = tasks.filter_map(|t| fs::read_to_string(t.path().join("children")).ok());
        let children = children.collect::<String>();
        all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        next += 1;
    }
    all
}

fn cpu_time(program: &Program) -> CpuTime {
    let sum =
        |a: CpuTime, b: CpuTime| CpuTime { user: a.user + b.user, system: a.system + b.system };
    tree(program.pid()).into_iter().map(child::cpu_time).fold(CpuTime::default(), sum)
}

fn start(
    program: Option<PathBuf>,
    arguments: &[String],
    cpu: Option<u32>,
    log: PathBuf,
) -> Result<Program, String> {
    Program::start(&program.ok_or("it is not installed")?, arguments, cpu, log)
}
