//! One run of a generator: started, measured for the time of a step, ended.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use squall_port_linux::{
    child::{self, CpuTime},
    interface_counters, set_gro,
};
use squall_units::Nanos;

use super::{
    model::GeneratorRound,
    tools::{Fill, Generator},
    wire::Frame,
};

/// Where tools run.
pub struct Place {
    pub interfaces: [String; 2],
    pub work: PathBuf,
    pub cpu: Option<u32>,
    pub step: Nanos,
}

/// Until the first frames arrive.
const START: Duration = Duration::from_secs(15);
/// Caches, buffers and clocks of a tool that has just begun.
const WARM_UP: Duration = Duration::from_millis(300);
const SECOND: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(10);
/// Between being asked to end, once more, and being killed.
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
        // Only for frames from XDP, as it changes what receiving costs. A driver that has no such
        // setting refuses those frames, which the tool then says.
        let _ = set_gro(&self.interfaces[1], tool.polls());
        let time = Duration::from_nanos(self.step.0);
        let fill = Fill {
            interface: &self.interfaces[0],
            frame,
            pps,
            // For tools that end by themselves.
            seconds: (time + WARM_UP).as_secs() + 2,
            report: &report,
        };
        let before = self.arrived()?;
        let receiver = tool.receiver().transpose().map_err(|e| e.to_string())?;
        let receiver = receiver
            .map(|tool| Started::new(&tool.find(), &tool.arguments, None, self.work.join("peer")))
            .transpose()?;
        if receiver.is_some() {
            std::thread::sleep(WARM_UP);
        }
        let (program, arguments) = tool.command(&fill).map_err(|e| e.to_string())?;
        let log = self.work.join("log");
        let mut started = Started::new(&program.find(), &arguments, self.cpu, log)?;
        self.wait_for_frames(&mut started, before, stop)?;
        let mut round = self.measure(&started, time, stop)?;
        round.peak_memory_octets = started.tree().iter().map(|pid| child::peak_memory(*pid)).sum();
        let output = started.end();
        drop(receiver);
        std::thread::sleep(LOOK);
        round.arrived = self.arrived()? - before;
        round.claimed = tool.claim(&output, &report);
        round.judge();
        Ok(round)
    }

    /// Frames that the receiving interface has counted.
    fn arrived(&self) -> Result<u64, String> {
        let of = &self.interfaces[1];
        interface_counters(of).map(|counters| counters.rx_packets).map_err(|e| format!("{of}: {e}"))
    }

    /// More than those of a control connection.
    fn wait_for_frames(
        &self,
        started: &mut Started,
        before: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let since = Instant::now();
        while self.arrived()? < before + 20 {
            if stop() {
                return Err("interrupted".into());
            }
            if child::has_ended(started.child.id()) || since.elapsed() > START {
                return Err(format!("it sent no frames: {}", last_words(&started.end())));
            }
            std::thread::sleep(LOOK);
        }
        std::thread::sleep(WARM_UP);
        Ok(())
    }

    /// Rates of each second, or of the whole step if that is shorter, and the CPU time over all.
    fn measure(
        &self,
        started: &Started,
        time: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<GeneratorRound, String> {
        let (cpu0, start) = (started.cpu_time(), Instant::now());
        let (mut pps, mut count, mut at) = (Vec::new(), self.arrived()?, start);
        let intervals = (time.as_secs_f64() / SECOND.as_secs_f64()).floor().max(1.0) as u32;
        for i in 1..=intervals {
            let next = start + SECOND.min(time) * i;
            while Instant::now() < next && !stop() {
                std::thread::sleep(LOOK.min(next.saturating_duration_since(Instant::now())));
            }
            // What came and the instant belong together: the machine may be late.
            let (now, arrived) = (Instant::now(), self.arrived()?);
            pps.push((arrived - count) as f64 / (now - at).as_secs_f64());
            (count, at) = (arrived, now);
        }
        let (cpu, seconds) = (started.cpu_time().since(cpu0), (at - start).as_secs_f64());
        Ok(GeneratorRound {
            pps,
            user_cpus: cpu.user.as_secs_f64() / seconds,
            system_cpus: cpu.system.as_secs_f64() / seconds,
            ..GeneratorRound::default()
        })
    }
}

/// A program that runs until it is dropped.
struct Started {
    child: Child,
    log: PathBuf,
}

impl Started {
    fn new(
        program: &Option<PathBuf>,
        arguments: &[String],
        cpu: Option<u32>,
        log: PathBuf,
    ) -> Result<Self, String> {
        let program = program.as_ref().ok_or("it is not installed")?;
        let failed = |e: std::io::Error| format!("{}: {e}", program.display());
        let output = File::create(&log).map_err(failed)?;
        let again = output.try_clone().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(output).stderr(again);
        Ok(Self { child: child::spawn(&mut command, cpu).map_err(failed)?, log })
    }

    /// Its processes: itself and its descendants.
    fn tree(&self) -> Vec<u32> {
        let mut all = vec![self.child.id()];
        let mut next = 0;
        while let Some(pid) = all.get(next) {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            let children = tasks.filter_map(|t| fs::read_to_string(t.path().join("children")).ok());
            let children: Vec<u32> = children
                .flat_map(|c| {
                    c.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<_>>()
                })
                .collect();
            all.extend(children);
            next += 1;
        }
        all
    }

    fn cpu_time(&self) -> CpuTime {
        let sum =
            |a: CpuTime, b: CpuTime| CpuTime { user: a.user + b.user, system: a.system + b.system };
        self.tree().into_iter().map(child::cpu_time).fold(CpuTime::default(), sum)
    }

    /// Asks it to end as Ctrl-C does, more than once, then kills it; all that it printed.
    fn end(&mut self) -> String {
        let pid = self.child.id();
        let since = Instant::now();
        child::interrupt(pid);
        while !child::has_ended(pid) && since.elapsed() < END {
            std::thread::sleep(LOOK);
        }
        child::kill(pid);
        let _ = self.child.wait();
        let octets = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&octets).into_owned()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        child::kill(self.child.id());
        let _ = self.child.wait();
    }
}

fn last_words(output: &str) -> String {
    let lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join(", ").chars().take(300).collect()
}
