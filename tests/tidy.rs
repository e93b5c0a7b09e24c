//! Rules about the source that no compiler checks: see the invariants in `ARCHITECTURE.md`.
//! A plain text search: good enough to notice, cheap enough to keep.

#![allow(clippy::unwrap_used)] // A file that cannot be read fails the test.

use std::path::{Path, PathBuf};

/// Every Rust file below a folder of the repository.
fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let mut out = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                out.push((path, text));
            }
        }
    }
    assert!(!out.is_empty(), "no Rust files in {folder}");
    out
}

/// Code lines of a file: no comments, nothing after the tests begin.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(i, line)| (i + 1, line))
}

fn is_test(path: &Path) -> bool {
    path.components()
        .any(|c| c.as_os_str() == "tests" || c.as_os_str() == "tests.rs")
}

#[track_caller]
fn forbid(folders: &[&str], words: &[&str], why: &str) {
    let mut found = Vec::new();
    for folder in folders {
        for (path, text) in files(folder) {
            if is_test(&path) {
                continue;
            }
            for (line, text) in code(&text) {
                // A sketch that counts; it knows nothing of the proxy.
                let text = text.replace("pingora_limits", "");
                if words.iter().any(|word| text.contains(word)) {
                    found.push(format!("{}:{line}: {}", path.display(), text.trim()));
                }
            }
        }
    }
    assert!(found.is_empty(), "{why}:\n{}", found.join("\n"));
}

#[test]
fn pure_rooms_do_no_io() {
    let io = [
        "std::fs",
        "std::net::Tcp",
        "tokio::",
        "pingora",
        "std::thread",
    ];
    forbid(
        &["src/router", "src/config/compile"],
        &io,
        "the router and the compiler do no I/O",
    );
    let io = ["std::fs", "std::net::Tcp", "tokio::", "pingora"];
    forbid(&["plugins/api"], &io, "the plugin contract does no I/O");
    let io = [
        "std::fs",
        "std::net::Tcp",
        "tokio::",
        "pingora",
        "Instant::now",
        "SystemTime::now",
    ];
    forbid(
        &["plugins/limit", "plugins/quota/hold"],
        &io,
        "limits do no I/O and read no clock",
    );
}

#[test]
fn plugins_know_neither_the_proxy_nor_each_other() {
    forbid(
        &["plugins"],
        &["pingora", "HeaderMap"],
        "plugins see requests through the contract only",
    );
    for (path, text) in files("plugins") {
        let path = path
            .strip_prefix(env!("CARGO_MANIFEST_DIR"))
            .unwrap()
            .to_owned();
        if path.ends_with("lib.rs") || path.starts_with("plugins/api") || is_test(&path) {
            continue;
        }
        for room in [
            "auth",
            "echo",
            "observe",
            "security",
            "traffic",
            "transform",
        ] {
            let other = format!("crate::{room}::");
            for (line, text) in code(&text) {
                let own = path.starts_with(format!("plugins/{room}"));
                assert!(
                    own || !text.contains(&other),
                    "{}:{line}: a plugin uses another",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn statics_hold_constants_only() {
    let cells = ["Atomic", "DashMap", "RefCell", "OnceCell<Mutex", "RwLock"];
    let mut found = Vec::new();
    for (path, text) in files("src").into_iter().chain(files("plugins")) {
        if is_test(&path) {
            continue;
        }
        for (line, text) in code(&text) {
            let is_static = text
                .trim_start()
                .trim_start_matches("pub ")
                .starts_with("static ");
            // Memory that nobody uses at the moment is no state; each worker keeps some.
            let memory = path.ends_with("wire/buffers.rs") && text.contains("static FREE:");
            // A memo of constants is behind a mutex and says so in its name.
            let state = cells.iter().any(|cell| text.contains(cell))
                || (text.contains("Mutex") && !text.contains("MEMO"));
            if is_static && state && !memory {
                found.push(format!("{}:{line}: {}", path.display(), text.trim()));
            }
        }
    }
    assert!(
        found.is_empty(),
        "state has an owner and a key, never a static:\n{}",
        found.join("\n")
    );
}

#[test]
fn files_hold_one_idea() {
    const LONGEST: usize = 800;
    for (path, text) in files("src").into_iter().chain(files("plugins")) {
        let lines = text.lines().count();
        assert!(
            lines <= LONGEST,
            "{} has {lines} lines; split it below {LONGEST}",
            path.display()
        );
    }
}

#[test]
fn every_plugin_has_cases() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/plugins");
    for def in lockgate_plugins::ALL {
        let name = def.name;
        let found = [name.to_owned(), name.replace('-', "_")]
            .iter()
            .any(|name| folder.join(format!("{name}.yaml")).exists());
        assert!(found, "tests/cases/plugins has no file for {name}");
    }
}
