//! Open Traffic Generator configurations and requests: no JSON causes a panic, and each results in
//! a profile or in problems.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use squall_otg::{
    Config,
    replies::{CaptureRequest, ControlAction, ControlState, MetricsRequest, StatesRequest},
    translate,
};

fuzz_target!(|text: &str| {
    let Ok(value) = serde_json::from_str::<Value>(text) else { return };
    if let Ok(config) = Config::from_json(&value) {
        match translate(&config) {
            Ok(translated) => {
                let streams = translated.profile.streams.len();
                assert!(
                    translated
                        .flows
                        .iter()
                        .flat_map(|flow| &flow.streams)
                        .all(|part| part.stream < streams)
                );
            }
            Err(problems) => assert!(!problems.0.is_empty()),
        }
        for changed in [config.append(&value), config.update(&value), config.delete(&value)]
            .into_iter()
            .flatten()
        {
            assert!(changed.to_json().is_object());
        }
    }
    let _ = (
        ControlState::from_json(&value),
        MetricsRequest::from_json(&value),
        CaptureRequest::from_json(&value),
    );
    let _ = (StatesRequest::from_json(&value), ControlAction::from_json(&value));
});
