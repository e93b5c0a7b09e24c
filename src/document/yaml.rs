//! YAML: the events of the parser into a tree.

use std::collections::HashMap;
use std::sync::Arc;

use lockgate_plugin::Problems;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle};
use serde_json::Value;

use super::scalar;
use super::tree::{Expect, Key, Node, Size, Spot, Tree};
use super::{count, problem};

/// The value, its own spot, and the spots of its parts.
pub(super) fn read(text: &str, file: &Arc<str>) -> Result<(Value, Spot, Vec<Spot>), Problems> {
    let mut parser = Parser::new_from_str(text);
    let mut tree = Tree::new(file);
    let mut anchors: HashMap<usize, Node> = HashMap::new();
    let mut documents = 0;
    while let Some(next) = parser.next_event() {
        let (event, span) = match next {
            Ok(next) => next,
            Err(e) => {
                let place = place(*e.marker());
                return Err(tree.fail(place, format!("not YAML: {}", e.info())));
            }
        };
        let place = place(span.start);
        match event {
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    return Err(tree.fail(place, "a second document starts here; one is allowed"));
                }
            }
            Event::MappingStart(anchor, tag) => {
                check_tag(tag.as_deref(), "map", place, file)?;
                tree.open_map(place, anchor)?;
            }
            Event::SequenceStart(anchor, tag) => {
                check_tag(tag.as_deref(), "seq", place, file)?;
                tree.open_list(place, anchor)?;
            }
            Event::MappingEnd | Event::SequenceEnd => anchors.extend(tree.close()?),
            Event::Scalar(text, ScalarStyle::Plain, 0, None)
                if text == "<<" && tree.expects() == Expect::Key =>
            {
                tree.key(Key::Merge, place);
            }
            Event::Scalar(text, style, anchor, tag) => {
                let is_key = tree.expects() == Expect::Key;
                // A key is text as it is written: `1`, `on` and `~` are names there.
                let value = if is_key {
                    Value::String(text.into_owned())
                } else {
                    scalar::resolve(text, style, tag.as_deref()).map_err(|m| tree.fail(place, m))?
                };
                let size = Size::scalar(&value);
                let node = Node {
                    value,
                    spot: Spot::new(place),
                    size,
                };
                if anchor > 0 {
                    anchors.insert(anchor, tree.copy(&node, place)?);
                }
                put(&mut tree, node)?;
            }
            Event::Alias(anchor) => {
                let Some(node) = anchors.get(&anchor) else {
                    return Err(tree.fail(place, "the alias stands inside what it refers to"));
                };
                let node = tree.copy(node, place)?;
                put(&mut tree, node)?;
            }
            Event::Nothing | Event::StreamStart | Event::DocumentEnd | Event::StreamEnd => {}
        }
    }
    tree.finish()
}

/// Puts a node, as key or as value.
fn put(tree: &mut Tree<'_>, node: Node) -> Result<(), Problems> {
    if tree.expects() == Expect::Value {
        return tree.put(node);
    }
    let place = (node.spot.line, node.spot.column);
    match node.value {
        Value::String(text) => tree.key(Key::Text(text), place),
        Value::Array(_) | Value::Object(_) => {
            return Err(tree.fail(place, "a list or mapping cannot be a key"));
        }
        other => tree.key(Key::Text(other.to_string()), place),
    }
    Ok(())
}

/// Refuses tags that mean something else than the container they stand at.
fn check_tag(
    tag: Option<&saphyr_parser::Tag>,
    allowed: &str,
    place: (u32, u32),
    file: &Arc<str>,
) -> Result<(), Problems> {
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && tag.suffix == allowed) => {
            let message = format!("the tag `{tag}` is not known here; `!!{allowed}` is");
            Err(problem(file, Some(place), message).into())
        }
        _ => Ok(()),
    }
}

/// The parser counts lines from 1 and columns from 0.
fn place(marker: Marker) -> (u32, u32) {
    (count(marker.line().max(1)), count(marker.col() + 1))
}
