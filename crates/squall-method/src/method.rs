//! [`Method`]: an enum over all methods.

use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

use crate::{
    bench::{Bench, MethodError, NoWatch, RecordedTrial, RetryPolicy},
    model::Device,
    outcome::{Outcome, Status, Verdict},
    path::Path,
    rfc8219, rfc8239,
    rig::Rig,
};

/// Invokes the macro `$then` with all methods: variant, module, title, and one or more lines of
/// command-line help. Each module has `run`, and `Settings` with `quick`.
#[macro_export]
macro_rules! each_method {
    ($then:ident) => {
        $then! {
            Rfc2544(rfc2544), "RFC 2544: benchmarking network interconnect devices",
                "Throughput, latency, frame loss, back-to-back (RFC 9004), recovery, reset";
            Rfc2889(rfc2889), "RFC 2889: benchmarking LAN switching devices",
                "Switches: meshed throughput, congestion, addresses, errored frames, broadcast";
            Rfc3918(rfc3918), "RFC 3918: IP multicast benchmarking",
                "IP multicast: throughput, latency, join and leave delay, group capacity";
            Rfc8219(rfc8219), "RFC 8219: benchmarking IPv6 transition technologies",
                "IPv6 transition: throughput, latency, delay variation, frame loss";
            Rfc8239(rfc8239), "RFC 8239: data center benchmarking",
                "Data center switches: line rate, buffers, microbursts, head-of-line blocking, incast";
            Soak(soak), "Soak test: constant load over time",
                "A constant load for hours: drift of loss and latency, availability";
            Tst009(tst009), "ETSI GS NFV-TST 009: throughput with loss verification",
                "Throughput with loss verification (ETSI GS NFV-TST 009)";
            Mlrsearch(mlrsearch), "RFC 9971: multiple loss ratio search",
                "Several loss ratios in one search: NDR and PDR (RFC 9971)";
            Y1564(y1564), "ITU-T Y.1564: Ethernet service activation",
                "Ethernet service activation: configuration and performance of services";
            Rfc6349(rfc6349), "RFC 6349: TCP throughput",
                "TCP throughput: MTU, round-trip time, bottleneck, transfer time ratio,"
                "efficiency, buffer delay";
            Rfc9411(rfc9411), "RFC 9411: performance of network security devices",
                "Firewalls and intrusion prevention: connections per second, throughput,"
                "latency, concurrent connections, with HTTP or HTTPS";
            Bufferbloat(bufferbloat), "Latency under load (bufferbloat)",
                "Latency under load (RRUL): latency while TCP connections fill the path in both"
                "directions, with a bufferbloat grade";
            Capacity(capacity), "Capacity of devices that keep state",
                "Connections per second and at once, goodput, and the flow table of a"
                "firewall, NAT or load balancer";
        }
    };
}

macro_rules! methods {
    ($($variant:ident($module:ident), $title:literal, $($help:literal)+;)*) => {
        /// A standard test and its settings.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "lowercase")]
        pub enum Method {
            $($variant(crate::$module::Settings),)*
        }

        impl Method {
            /// The method's name on the command line.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => stringify!($module),)*
                }
            }

            pub fn title(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $title,)*
                }
            }

            /// The same method with short trials and few repetitions. Settings in `given` keep
            /// their values.
            pub fn quick(self, given: &[&str]) -> Self {
                match self {
                    $(Self::$variant(settings) => Self::$variant(settings.quick(given)),)*
                }
            }

            /// All methods, with the schemas of their settings.
            pub fn all() -> Vec<MethodInfo> {
                let all = [$((Self::$variant(Default::default()), schema_for!(crate::$module::Settings)),)*];
                all.into_iter().map(|(method, schema)| MethodInfo::of(&method, schema)).collect()
            }

            fn settings(&self) -> serde_json::Value {
                let value = match self {
                    $(Self::$variant(settings) => serde_json::to_value(settings),)*
                };
                value.unwrap_or_default()
            }

            fn go(&self, rig: &Rig, bench: &mut Bench<'_>, outcome: &mut Outcome) -> Result<(), MethodError> {
                match self {
                    $(Self::$variant(settings) => crate::$module::run(settings, rig, bench, outcome),)*
                }
            }
        }
    };
}

each_method!(methods);

/// Description of a method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MethodInfo {
    /// Name on the command line.
    pub name: String,
    pub title: String,
    /// JSON schema of its settings.
    pub settings: serde_json::Value,
    /// Default settings.
    pub defaults: serde_json::Value,
    /// Default settings with short trials and few repetitions (`quick`).
    pub quick: serde_json::Value,
    /// Whether it sends the streams of a profile.
    pub wants_streams: bool,
    /// Whether it opens connections between the clients and the servers of a profile.
    pub wants_flows: bool,
}

impl MethodInfo {
    fn of(method: &Method, schema: Schema) -> Self {
        Self {
            name: method.name().into(),
            title: method.title().into(),
            settings: schema.to_value(),
            defaults: method.settings(),
            quick: method.clone().quick(&[]).settings(),
            wants_streams: method.wants_streams(),
            wants_flows: method.wants_flows(),
        }
    }
}

/// Trials and time of a test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    pub trials: usize,
    pub seconds: f64,
}

impl Method {
    /// Whether it opens connections, for which the profile needs clients and servers.
    pub fn wants_flows(&self) -> bool {
        match self {
            Self::Capacity(_) | Self::Bufferbloat(_) | Self::Rfc6349(_) | Self::Rfc9411(_) => true,
            Self::Rfc8219(settings) => settings.tests.contains(&rfc8219::Test::Dns64),
            Self::Rfc8239(settings) => settings.tests.contains(&rfc8239::Test::Incast),
            _ => false,
        }
    }

    /// Whether it sends the streams of the profile. Other methods generate their own.
    pub fn wants_streams(&self) -> bool {
        match self {
            Self::Rfc8219(settings) => settings.sends_frames(),
            Self::Capacity(_)
            | Self::Rfc9411(_)
            | Self::Rfc2889(_)
            | Self::Rfc3918(_)
            | Self::Rfc8239(_) => false,
            _ => true,
        }
    }

    /// Whether its loads are fractions of the link's capacity.
    pub fn wants_rate(&self) -> bool {
        match self {
            Self::Rfc6349(settings) => settings.bottleneck_bps.is_none(),
            Self::Rfc8219(settings) => settings.sends_frames(),
            Self::Bufferbloat(_) | Self::Capacity(_) | Self::Rfc9411(_) | Self::Y1564(_) => false,
            _ => true,
        }
    }

    /// Runs the method to completion. If it is stopped, the outcome has the results up to then.
    ///
    /// # Errors
    /// Wrong settings, or a failure that makes further trials pointless.
    pub fn run(&self, rig: &Rig, bench: &mut Bench<'_>) -> Result<Outcome, MethodError> {
        let mut outcome = Outcome::new(self.name(), self.title(), &self.settings());
        bench.expect(Path::of(self, rig));
        let done = self.go(rig, bench, &mut outcome);
        // A table without rows is of a test that did not run; a note gives the reason.
        outcome.tables.retain(|table| !table.rows.is_empty());
        outcome.rig = Some(rig.clone());
        outcome.trials = bench.trials().to_vec();
        outcome.add_clock_uncertainty();
        match done {
            Ok(()) => outcome.note_generator_limit(),
            Err(MethodError::Stopped) => outcome.verdict.status = Status::Stopped,
            Err(halt) => return Err(halt),
        }
        Ok(outcome)
    }

    /// The outcome of an unfinished test, with the trials so far.
    pub fn partial_outcome(&self, trials: Vec<RecordedTrial>) -> Outcome {
        let text = vec![format!("{} trials so far", trials.len())];
        let verdict = Verdict { status: Status::Stopped, text };
        Outcome { verdict, trials, ..Outcome::new(self.name(), self.title(), &self.settings()) }
    }

    /// Estimated time on a device with a capacity of half the highest rate. A device that forwards
    /// everything ends a search sooner.
    ///
    /// # Errors
    /// Wrong settings.
    pub fn estimate(&self, rig: &Rig, retry: RetryPolicy) -> Result<Estimate, MethodError> {
        let half = rig.total_fps(64) / 2.0;
        let mut device =
            Device { capacity_fps: half, buffer: 100.0, delay_ns: 10_000, ..Device::ideal() };
        let (cps, connections) = match self {
            Self::Capacity(settings) => (settings.max_cps, settings.max_concurrent),
            Self::Rfc9411(settings) => (settings.max_cps, settings.max_concurrent),
            Self::Rfc8219(settings) => (settings.dns_max_qps, u64::MAX),
            _ => (f64::INFINITY, u64::MAX),
        };
        (device.cps, device.connections) = (cps / 2.0, connections as f64 / 2.0);
        let mut watch = NoWatch;
        let trials = {
            let mut bench = Bench::new(&mut device, &mut watch, retry);
            self.run(rig, &mut bench)?.trials.len()
        };
        Ok(Estimate { trials, seconds: device.spent_s })
    }
}
