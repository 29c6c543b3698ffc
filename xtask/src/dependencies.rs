//! Checks external dependencies: licenses, sources and versions must be allowed by `deny.toml`, and
//! no dependency may be unused.
//!
//! cargo-deny checks more of the same `deny.toml` (advisories, whose database is not available
//! offline), but this check takes a second and needs no build.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

pub fn check(root: &Path) -> Result<Vec<String>, String> {
    let file = root.join("deny.toml");
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let rules: Value = toml::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))?;
    let metadata = metadata(root, &rules)?;
    let packages: Vec<&Value> = list(&metadata["packages"]).iter().collect();
    let mut wrong = licences(&rules, &packages)?;
    wrong.extend(sources(&packages));
    wrong.extend(versions(&rules, &packages));
    wrong.extend(unused(&packages)?);
    Ok(wrong)
}

/// The output of `cargo metadata`, limited to the targets in `deny.toml`.
fn metadata(root: &Path, rules: &Value) -> Result<Value, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--locked", "--format-version=1"]).current_dir(root);
    for target in list(&rules["graph"]["targets"]).iter().filter_map(Value::as_str) {
        command.args(["--filter-platform", target]);
    }
    let output = command.output().map_err(|e| format!("cargo metadata does not start: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap_or_default()
}

fn called(package: &Value) -> String {
    format!("{} {}", name(package), package["version"].as_str().unwrap_or_default())
}

fn licences(rules: &Value, packages: &[&Value]) -> Result<Vec<String>, String> {
    let allowed: Vec<&str> =
        list(&rules["licenses"]["allow"]).iter().filter_map(Value::as_str).collect();
    let (mut wrong, mut needed) = (vec![], BTreeSet::new());
    for package in packages {
        let Some(licence) = package["license"].as_str() else {
            wrong.push(format!("{}: says no licence", called(package)));
            continue;
        };
        let found = satisfied(licence, &allowed)
            .map_err(|why| format!("{}: {licence:?}: {why}", called(package)))?;
        match found {
            Some(used) => needed.extend(used),
            None => wrong.push(format!(
                "{}: its licence is {licence}\n  deny.toml allows {}",
                called(package),
                allowed.join(", ")
            )),
        }
    }
    let unneeded = allowed.iter().filter(|one| !needed.contains(**one));
    wrong.extend(unneeded.map(|one| format!("deny.toml: nothing needs the licence {one}")));
    Ok(wrong)
}

/// The allowed licenses that satisfy `expression` (SPDX). If there is a choice, the first license
/// in the order of `allowed` counts.
fn satisfied<'a>(expression: &str, allowed: &[&'a str]) -> Result<Option<Vec<&'a str>>, String> {
    // The syntax that crates used before SPDX: `MIT/Apache-2.0`.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let found = any(&mut rest, allowed)?;
    if rest.is_empty() {
        Ok(found)
    } else {
        Err(format!("found {:?}, expected AND or OR", rest[0]))
    }
}

type Found<'a> = Result<Option<Vec<&'a str>>, String>;

fn any<'a>(rest: &mut &[&str], allowed: &[&'a str]) -> Found<'a> {
    let place = |found: &Vec<&str>| {
        found.iter().filter_map(|one| allowed.iter().position(|known| known == one)).max()
    };
    let mut best = all(rest, allowed)?;
    while rest.first() == Some(&"OR") {
        *rest = &rest[1..];
        let other = all(rest, allowed)?;
        best = [best, other].into_iter().flatten().min_by_key(place);
    }
    Ok(best)
}

fn all<'a>(rest: &mut &[&str], allowed: &[&'a str]) -> Found<'a> {
    let mut every = one(rest, allowed)?;
    while rest.first() == Some(&"AND") {
        *rest = &rest[1..];
        let other = one(rest, allowed)?;
        every = every.zip(other).map(|(mut every, other)| {
            every.extend(other);
            every
        });
    }
    Ok(every)
}

fn one<'a>(rest: &mut &[&str], allowed: &[&'a str]) -> Found<'a> {
    let (first, after) = rest.split_first().ok_or("ends too early")?;
    *rest = after;
    if *first == "(" {
        let inner = any(rest, allowed)?;
        return match rest.split_first() {
            Some((&")", after)) => {
                *rest = after;
                Ok(inner)
            }
            _ => Err("a bracket is not closed".into()),
        };
    }
    let mut licence = (*first).to_owned();
    if let Some((&"WITH", [exception, after @ ..])) = rest.split_first() {
        licence += &format!(" WITH {exception}");
        *rest = after;
    }
    Ok(allowed.iter().find(|one| **one == licence).map(|one| vec![*one]))
}

fn sources(packages: &[&Value]) -> Vec<String> {
    const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
    let other =
        |package: &&&Value| package["source"].as_str().is_some_and(|source| source != REGISTRY);
    let message = |package: &&Value| {
        format!("{}: comes from {}, expected crates.io", called(package), package["source"])
    };
    packages.iter().filter(other).map(message).collect()
}

/// Reports crates with two versions: both are built, and their types are confusing in errors and
/// backtraces. `skip` lists those that cannot be avoided.
fn versions(rules: &Value, packages: &[&Value]) -> Vec<String> {
    let mut of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    packages
        .iter()
        .for_each(|one| of.entry(name(one)).or_default().extend(one["version"].as_str()));
    let skips: Vec<(&str, &str)> = list(&rules["bans"]["skip"])
        .iter()
        .filter_map(|skip| skip["crate"].as_str()?.split_once('@'))
        .collect();
    let mut wrong = vec![];
    for (name, versions) in &of {
        let fits =
            |version: &&&str| skips.iter().any(|(of, skip)| of == name && is_of(version, skip));
        if versions.iter().filter(|version| !fits(version)).count() > 1 {
            let versions = versions.join(" and ");
            wrong.push(format!(
                "{name}: there are {versions}\n  try cargo tree -i {name}; or a skip in \
                 deny.toml, with its reason"
            ));
        }
    }
    let needed = |(name, skip): &&(&str, &str)| {
        of.get(name).is_some_and(|versions| {
            versions.len() > 1 && versions.iter().any(|version| is_of(version, skip))
        })
    };
    let unneeded = skips.iter().filter(|skip| !needed(skip));
    wrong.extend(
        unneeded.map(|(name, skip)| format!("deny.toml: {name}@{skip} needs no skip any more")),
    );
    wrong
}

/// Whether version `0.10.7` is within `0.10`.
fn is_of(version: &str, prefix: &str) -> bool {
    version
        .strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '+', '-']))
}

/// Dependencies that do not appear in their package's code, which is in its folder and in those of
/// `package.metadata.sources`. As with cargo-machete, `package.metadata.cargo-machete.ignored` lists
/// those needed for a feature or a build.
fn unused(packages: &[&Value]) -> Result<Vec<String>, String> {
    let library = |name: &str| {
        let of_it = packages.iter().filter(|package| package["name"] == name);
        let targets = of_it.flat_map(|package| list(&package["targets"]));
        let is_library = |target: &&Value| {
            list(&target["kind"])
                .iter()
                .any(|kind| matches!(kind.as_str(), Some("lib" | "rlib" | "proc-macro" | "cdylib")))
        };
        targets
            .filter(is_library)
            .find_map(|target| target["name"].as_str())
            .unwrap_or(name)
            .replace('-', "_")
    };
    let mut wrong = vec![];
    for package in packages.iter().filter(|package| package["source"].is_null()) {
        let manifest =
            Path::new(package["manifest_path"].as_str().ok_or("a package without a manifest")?);
        let folder = manifest.parent().ok_or("a manifest without a folder")?;
        let more = list(&package["metadata"]["sources"]).iter().filter_map(Value::as_str);
        let mut files = rust_files(folder)?;
        for other in more {
            files.extend(rust_files(&folder.join(other))?);
        }
        let mut words = BTreeSet::new();
        for file in files {
            let text =
                std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            let parts = text.split(|c: char| !c.is_alphanumeric() && c != '_');
            words.extend(parts.filter(|word| !word.is_empty()).map(str::to_owned));
        }
        let ignored = list(&package["metadata"]["cargo-machete"]["ignored"]);
        for dependency in list(&package["dependencies"]) {
            let dependency_name = name(dependency);
            let used = dependency["rename"]
                .as_str()
                .map_or_else(|| library(dependency_name), |name| name.replace('-', "_"));
            if !words.contains(&used) && !ignored.iter().any(|one| one == dependency_name) {
                wrong.push(format!(
                    "{}: no code of it uses {dependency_name}\n  try: cargo remove {dependency_name} -p {}",
                    name(package),
                    name(package)
                ));
            }
        }
    }
    Ok(wrong)
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = vec![];
    for entry in std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))? {
        let path = entry.map_err(|e| format!("{}: {e}", folder.display()))?.path();
        if path.is_dir() && !path.ends_with("target") {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_expression_of_licenses_is_satisfied_by_allowed_ones() {
        let allowed = ["Apache-2.0", "MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"];
        for (expression, expected) in [
            ("MIT", Some(vec!["MIT"])),
            ("MIT/Apache-2.0", Some(vec!["Apache-2.0"])),
            ("GPL-3.0-only", None),
            ("GPL-3.0-only OR MIT", Some(vec!["MIT"])),
            ("MIT AND GPL-3.0-only", None),
            ("(MIT OR GPL-2.0) AND Unicode-3.0", Some(vec!["MIT", "Unicode-3.0"])),
            ("Apache-2.0 WITH LLVM-exception", Some(vec!["Apache-2.0 WITH LLVM-exception"])),
            ("Apache-2.0 WITH Other-exception", None),
        ] {
            assert_eq!(satisfied(expression, &allowed), Ok(expected), "{expression}");
        }
        for broken in ["", "(MIT", "MIT MIT", "MIT OR"] {
            assert!(satisfied(broken, &allowed).is_err(), "{broken}");
        }
    }

    #[test]
    fn two_versions_and_unnecessary_skips_are_errors() {
        let package = |name: &str, version: &str| json!({ "name": name, "version": version });
        let all = [
            package("a", "1.0.0"),
            package("a", "0.9.2"),
            package("b", "1.0.0"),
            package("c", "1.1.0"),
            package("c", "2.0.0"),
        ];
        let rules = json!({ "bans": { "skip": [{ "crate": "a@0.9" }, { "crate": "b@1" }, { "crate": "d@1" }] } });
        let messages = versions(&rules, &all.iter().collect::<Vec<_>>()).join("\n");
        assert!(
            messages.contains("c: there are") && !messages.contains("a: there are"),
            "{messages}"
        );
        assert!(
            messages.contains("b@1 needs no skip") && messages.contains("d@1 needs no skip"),
            "{messages}"
        );
    }
}
