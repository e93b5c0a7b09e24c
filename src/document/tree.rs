//! Builds a value and the places of its parts from a stream of events.
//!
//! Both readers feed it. It owns the bounds that do not depend on the syntax:
//! nesting, number of values, and how much is copied.

use std::sync::Arc;

use lockgate_plugin::Problems;
use serde_json::map::Entry;
use serde_json::{Map, Value};

use crate::pace::Pace;

use super::{MAX_COPIED_NODES, MAX_DEPTH, MAX_NODES, MAX_TEXT, count, problem};

/// Where one part was written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spot {
    /// Line, from 1; 0 when nothing was written.
    pub(super) line: u32,
    /// Column in characters, from 1.
    pub(super) column: u32,
    /// Index of the spot of the first child.
    pub(super) children: u32,
}

impl Spot {
    pub(super) fn new((line, column): (u32, u32)) -> Spot {
        Spot {
            line,
            column,
            children: 0,
        }
    }

    fn place(self) -> (u32, u32) {
        (self.line, self.column)
    }
}

/// How large a value is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    /// Levels of containers; 0 for a scalar.
    height: usize,
    nodes: usize,
    /// Text in keys and strings.
    bytes: usize,
}

impl Size {
    pub(super) fn scalar(value: &Value) -> Size {
        Size {
            height: 0,
            nodes: 1,
            bytes: value.as_str().map_or(0, str::len),
        }
    }

    fn add(&mut self, child: Size) {
        self.height = self.height.max(child.height + 1);
        self.nodes += child.nodes;
        self.bytes += child.bytes;
    }
}

/// A complete value.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) spot: Spot,
    pub(super) size: Size,
}

/// What an open container waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    Key,
    Value,
}

/// A key of a mapping.
pub(super) enum Key {
    Text(String),
    /// YAML's `<<`: the entries of the value become entries of the mapping, unless they are there.
    Merge,
}

enum Content {
    List(Vec<Value>),
    Map {
        map: Map<String, Value>,
        key: Option<(Key, Spot)>,
        merges: Vec<(Map<String, Value>, u32)>,
    },
}

struct Frame {
    content: Content,
    spot: Spot,
    size: Size,
    /// Where this container's children start in `pending`.
    pending: usize,
    anchor: usize,
}

/// The builder. After an `Err` it is of no further use.
pub(super) struct Tree<'f> {
    file: &'f Arc<str>,
    frames: Vec<Frame>,
    /// Spots of the children of all open containers.
    pending: Vec<Spot>,
    spots: Vec<Spot>,
    nodes: usize,
    pace: Pace,
    copied: Size,
    root: Option<Node>,
    problems: Problems,
}

impl<'f> Tree<'f> {
    pub(super) fn new(file: &'f Arc<str>) -> Self {
        Tree {
            file,
            frames: Vec::new(),
            pending: Vec::new(),
            spots: Vec::new(),
            nodes: 0,
            pace: Pace::start(),
            copied: Size::default(),
            root: None,
            problems: Problems::default(),
        }
    }

    /// What the innermost open container waits for.
    pub(super) fn expects(&self) -> Expect {
        match self.frames.last().map(|f| &f.content) {
            Some(Content::Map { key: None, .. }) => Expect::Key,
            _ => Expect::Value,
        }
    }

    /// Opens a list.
    pub(super) fn open_list(&mut self, place: (u32, u32), anchor: usize) -> Result<(), Problems> {
        self.open(Content::List(Vec::new()), place, anchor)
    }

    /// Opens a mapping.
    pub(super) fn open_map(&mut self, place: (u32, u32), anchor: usize) -> Result<(), Problems> {
        self.open(
            Content::Map {
                map: Map::new(),
                key: None,
                merges: Vec::new(),
            },
            place,
            anchor,
        )
    }

    fn open(&mut self, content: Content, place: (u32, u32), anchor: usize) -> Result<(), Problems> {
        if self.expects() == Expect::Key {
            return Err(self.fail(place, "a list or mapping cannot be a key"));
        }
        if self.frames.len() >= MAX_DEPTH {
            return Err(self.fail(place, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let size = Size {
            height: 1,
            nodes: 1,
            bytes: 0,
        };
        let pending = self.pending.len();
        self.frames.push(Frame {
            content,
            spot: Spot::new(place),
            size,
            pending,
            anchor,
        });
        Ok(())
    }

    /// Takes the key of the next entry.
    pub(super) fn key(&mut self, new: Key, place: (u32, u32)) {
        if let Some(Frame {
            content: Content::Map { key, .. },
            size,
            ..
        }) = self.frames.last_mut()
        {
            if let Key::Text(text) = &new {
                size.bytes += text.len();
            }
            *key = Some((new, Spot::new(place)));
        }
    }

    /// Closes the innermost container and puts it in its place. The anchor it was opened with and
    /// the node, where there is one.
    pub(super) fn close(&mut self) -> Result<Option<(usize, Node)>, Problems> {
        let Some(mut frame) = self.frames.pop() else {
            return Ok(None);
        };
        let value = match frame.content {
            Content::List(items) => Value::Array(items),
            Content::Map {
                mut map, merges, ..
            } => {
                for (source, children) in merges {
                    self.merge(&mut map, source, children);
                }
                Value::Object(map)
            }
        };
        frame.spot.children = count(self.spots.len());
        self.spots.extend(self.pending.drain(frame.pending..));
        let node = Node {
            value,
            spot: frame.spot,
            size: frame.size,
        };
        let anchored = match frame.anchor {
            0 => None,
            anchor => Some((anchor, self.copy(&node, node.spot.place())?)),
        };
        self.put(node)?;
        Ok(anchored)
    }

    /// A copy of a node for an anchor or an alias at `place`.
    ///
    /// # Errors
    /// The document copies more than it may.
    pub(super) fn copy(&mut self, node: &Node, place: (u32, u32)) -> Result<Node, Problems> {
        self.copied.nodes += node.size.nodes;
        self.copied.bytes += node.size.bytes;
        if self.copied.nodes > MAX_COPIED_NODES || self.copied.bytes > MAX_TEXT {
            let message = format!(
                "anchors and aliases copy more than {MAX_COPIED_NODES} values or {MAX_TEXT} bytes"
            );
            return Err(self.fail(place, message));
        }
        let mut copy = node.clone();
        (copy.spot.line, copy.spot.column) = place;
        Ok(copy)
    }

    /// Puts a complete value where the innermost container waits for one.
    pub(super) fn put(&mut self, node: Node) -> Result<(), Problems> {
        self.nodes += 1;
        self.pace.step();
        let place = node.spot.place();
        if self.nodes + self.copied.nodes > MAX_NODES {
            return Err(self.fail(place, format!("has more than {MAX_NODES} values")));
        }
        if self.frames.len() + node.size.height > MAX_DEPTH {
            return Err(self.fail(place, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let Some(frame) = self.frames.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        frame.size.add(node.size);
        let (map, key, merges) = match &mut frame.content {
            Content::List(items) => {
                items.push(node.value);
                self.pending.push(node.spot);
                return Ok(());
            }
            Content::Map { map, key, merges } => (map, key, merges),
        };
        match key.take() {
            Some((Key::Text(key), spot)) => {
                let taken = match map.entry(key) {
                    Entry::Vacant(free) => {
                        free.insert(node.value);
                        None
                    }
                    Entry::Occupied(first) => Some(first.key().clone()),
                };
                if let Some(key) = taken {
                    let at = map.keys().position(|k| *k == key).unwrap_or_default();
                    let first = self
                        .pending
                        .get(frame.pending + at)
                        .copied()
                        .unwrap_or_default();
                    let message = format!(
                        "duplicate key `{key}`, first at line {}, column {}",
                        first.line, first.column
                    );
                    return self.report(spot.place(), message);
                }
                self.pending.push(Spot {
                    children: node.spot.children,
                    ..spot
                });
                Ok(())
            }
            Some((Key::Merge, spot)) => {
                let sources = merge_sources(node, &self.spots);
                match sources {
                    Some(sources) if merges.is_empty() => merges.extend(sources),
                    Some(_) => return self.report(spot.place(), "duplicate key `<<`"),
                    None => {
                        let message = "`<<` takes a mapping or a list of mappings";
                        return self.report(spot.place(), message);
                    }
                }
                Ok(())
            }
            None => Err(self.fail(place, "a value without a key")),
        }
    }

    /// Adds the entries of `source` that `map` does not have.
    fn merge(&mut self, map: &mut Map<String, Value>, source: Map<String, Value>, children: u32) {
        for (at, (key, value)) in source.into_iter().enumerate() {
            if !map.contains_key(&key) {
                map.insert(key, value);
                let spot = self
                    .spots
                    .get(children as usize + at)
                    .copied()
                    .unwrap_or_default();
                self.pending.push(spot);
            }
        }
    }

    /// Remembers a mistake that reading can go on behind.
    ///
    /// # Errors
    /// All of them, when there are too many.
    pub(super) fn report(
        &mut self,
        place: (u32, u32),
        message: impl Into<String>,
    ) -> Result<(), Problems> {
        self.problems.push(problem(self.file, Some(place), message));
        if self.problems.len() < Problems::MOST {
            Ok(())
        } else {
            Err(std::mem::take(&mut self.problems))
        }
    }

    /// All mistakes so far and a last one.
    pub(super) fn fail(&mut self, place: (u32, u32), message: impl Into<String>) -> Problems {
        self.problems.push(problem(self.file, Some(place), message));
        std::mem::take(&mut self.problems)
    }

    /// The whole tree; an empty mapping when nothing, or null, was written.
    pub(super) fn finish(self) -> Result<(Value, Spot, Vec<Spot>), Problems> {
        self.problems.into_result()?;
        match self.root {
            Some(Node {
                value: Value::Null,
                spot,
                ..
            }) => Ok((Value::Object(Map::new()), spot, self.spots)),
            Some(node) => Ok((node.value, node.spot, self.spots)),
            None => Ok((Value::Object(Map::new()), Spot::default(), self.spots)),
        }
    }
}

/// The mappings that a `<<` names, each with the index of its first entry's spot.
fn merge_sources(node: Node, spots: &[Spot]) -> Option<Vec<(Map<String, Value>, u32)>> {
    match node.value {
        Value::Object(map) => Some(vec![(map, node.spot.children)]),
        Value::Array(items) => {
            let spot = |at: usize| {
                spots
                    .get(node.spot.children as usize + at)
                    .map_or(0, |s| s.children)
            };
            let item = |(at, item)| match item {
                Value::Object(map) => Some((map, spot(at))),
                _ => None,
            };
            items.into_iter().enumerate().map(item).collect()
        }
        _ => None,
    }
}
