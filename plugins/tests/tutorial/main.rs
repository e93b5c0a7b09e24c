//! The plugin that `docs/writing-a-plugin.md` builds, and a test that the page shows this code.
#![allow(clippy::panic, clippy::expect_used)] // All of it is tests.

pub mod banner;

use std::path::Path;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = std::fs::read_to_string(root.join(path));
    read.unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The file and the text of every block of Rust: the fence names the file.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let mut out = Vec::new();
    for rest in page.split("```rust ").skip(1) {
        let (file, rest) = rest.split_once('\n').expect("a line after the fence");
        let (text, _) = rest.split_once("\n```").expect("the end of the block");
        out.push((file, text));
    }
    out
}

#[test]
fn the_page_shows_the_code_that_is_tested() {
    let page = read("docs/writing-a-plugin.md");
    assert!(!page.contains("```rust\n"), "a block names no file");
    for (file, text) in blocks(&page) {
        assert!(read(file).contains(text), "not in {file}:\n{text}");
    }
}

#[test]
fn the_page_leaves_out_nothing() {
    const FILE: &str = "plugins/tests/tutorial/banner.rs";
    let page = read("docs/writing-a-plugin.md");
    let own = blocks(&page).into_iter().filter(|(file, _)| *file == FILE);
    let shown: Vec<&str> = own.map(|(_, text)| text.trim_end()).collect();
    assert_eq!(shown.join("\n\n") + "\n", read(FILE));
}
