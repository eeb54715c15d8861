//! The text preprocessor of the shaders.
//!
//! A directive stands alone on its line:
//!
//! ```text
//! #include "kernels/common.wgsl"     the file's text, once a module
//! #define NAME text                  NAME stands for text from here on; without a text it is 1
//! #if EXPR / #elif EXPR / #else / #endif
//! ```
//!
//! An expression is made of `NAME` (true unless absent or 0), numbers, `NAME == word`, `NAME != word`, `<`, `>`, `!`, `&&`,
//! `||` and parentheses. Names are replaced in all other lines where they stand as whole words, and so are names in what
//! replaces them.

use std::{collections::BTreeMap, fmt};

/// Names and what they stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Defines(BTreeMap<String, String>);

impl Defines {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// With `name` standing for `value`.
    pub fn set(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.0.insert(name.into(), value.to_string());
        self
    }

    /// With `name` standing for 1 where `on`, and absent otherwise.
    pub fn flag(self, name: &str, on: bool) -> Self {
        if on { self.set(name, 1) } else { self }
    }

    /// What `name` stands for.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl fmt::Display for Defines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> =
            self.iter().map(|(n, v)| if v == "1" { n.to_owned() } else { format!("{n}={v}") }).collect();
        f.write_str(&words.join(" "))
    }
}

/// What is wrong with a shader's text.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{file}:{line}: {what}")]
pub struct PreprocessError {
    /// Its file.
    pub file: String,
    /// Its line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

/// The text of the shader `file`, its directives done. `source` gives a file's text by name.
///
/// # Errors
/// Names the file and line: a directive that is none, an `#if` without its end, a file that is not there.
pub fn preprocess<'s>(
    source: &dyn Fn(&str) -> Option<&'s str>,
    file: &str,
    defines: &Defines,
) -> Result<String, PreprocessError> {
    let mut run = Run { source, defines: defines.clone(), included: vec![], out: String::new() };
    run.file(file)?;
    Ok(run.out)
}

struct Run<'a, 's> {
    source: &'a dyn Fn(&str) -> Option<&'s str>,
    defines: Defines,
    included: Vec<String>,
    out: String,
}

/// One `#if` that is open.
struct Branch {
    /// Whether this branch's lines count.
    on: bool,
    /// Whether one of its branches has counted already, or the whole stands in lines that do not.
    done: bool,
    otherwise: bool,
    line: usize,
}

impl Run<'_, '_> {
    fn file(&mut self, file: &str) -> Result<(), PreprocessError> {
        let fail = |line: usize, what: String| PreprocessError { file: file.into(), line, what };
        let text = (self.source)(file).ok_or_else(|| fail(0, "there is no such shader".into()))?;
        self.included.push(file.into());
        let mut open: Vec<Branch> = vec![];
        for (at, line) in text.lines().enumerate() {
            let at = at + 1;
            let on = open.last().is_none_or(|branch| branch.on);
            let Some(directive) = line.trim_start().strip_prefix('#') else {
                if on {
                    let line = self.replace(line, 0).map_err(|what| fail(at, what))?;
                    self.out.push_str(&line);
                    self.out.push('\n');
                }
                continue;
            };
            let (word, rest) = directive.split_once(char::is_whitespace).unwrap_or((directive, ""));
            let rest = rest.split("//").next().unwrap_or("").trim();
            match word {
                "if" => {
                    let holds = on && self.holds(rest).map_err(|what| fail(at, what))?;
                    open.push(Branch { on: holds, done: holds || !on, otherwise: false, line: at });
                }
                "elif" | "else" => {
                    let branch = open.last_mut().ok_or_else(|| fail(at, format!("#{word} without #if")))?;
                    if branch.otherwise {
                        return Err(fail(at, format!("#{word} after #else")));
                    }
                    branch.otherwise = word == "else";
                    let holds = !branch.done
                        && (word == "else" || Self::holds_in(&self.defines, rest).map_err(|what| fail(at, what))?);
                    branch.on = holds;
                    branch.done |= holds;
                }
                "endif" => {
                    open.pop().ok_or_else(|| fail(at, "#endif without #if".into()))?;
                }
                _ if !on => {}
                "include" => {
                    let name = self.replace(rest.trim_matches('"'), 0).map_err(|what| fail(at, what))?;
                    if !self.included.contains(&name) {
                        self.file(&name)
                            .map_err(|e| if e.line == 0 { fail(at, format!("{name}: {}", e.what)) } else { e })?;
                    }
                }
                "define" => {
                    let (name, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, "1"));
                    if name.is_empty() || !name.chars().all(is_word) {
                        return Err(fail(at, format!("#define of {name:?}, which is no name")));
                    }
                    self.defines.0.insert(name.into(), value.trim().into());
                }
                _ => return Err(fail(at, format!("#{word} is no directive"))),
            }
        }
        match open.pop() {
            Some(branch) => Err(fail(branch.line, "#if without #endif".into())),
            None => Ok(()),
        }
    }

    /// The line with every name that is defined replaced.
    fn replace(&self, line: &str, depth: usize) -> Result<String, String> {
        if depth > 16 {
            return Err("names that stand for each other".into());
        }
        let mut out = String::with_capacity(line.len());
        let mut rest = line;
        while let Some(start) = rest.find(is_word) {
            let (before, from) = rest.split_at(start);
            if before.contains("//") {
                break;
            }
            out.push_str(before);
            let end = from.find(|c| !is_word(c)).unwrap_or(from.len());
            let (word, behind) = from.split_at(end);
            match self.defines.get(word) {
                Some(value) if value != word => out.push_str(&self.replace(value, depth + 1)?),
                _ => out.push_str(word),
            }
            rest = behind;
        }
        out.push_str(rest);
        Ok(out)
    }

    fn holds(&self, expression: &str) -> Result<bool, String> {
        Self::holds_in(&self.defines, expression)
    }

    fn holds_in(defines: &Defines, expression: &str) -> Result<bool, String> {
        let tokens = tokens(expression)?;
        let mut reader = Expression { defines, tokens: &tokens };
        let holds = reader.either()?;
        match reader.tokens {
            [] => Ok(holds),
            [rest, ..] => Err(format!("{rest:?} in {expression:?}")),
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn tokens(text: &str) -> Result<Vec<&str>, String> {
    let mut tokens = vec![];
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let len = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if ["&&", "||", "==", "!="].iter().any(|op| rest.starts_with(op)) {
            2
        } else if "!()<>".contains(first) {
            1
        } else {
            return Err(format!("{first:?} in {text:?}"));
        };
        let (token, behind) = rest.split_at(len);
        tokens.push(token);
        rest = behind.trim_start();
    }
    Ok(tokens)
}

struct Expression<'a> {
    defines: &'a Defines,
    tokens: &'a [&'a str],
}

impl Expression<'_> {
    fn take(&mut self, token: &str) -> bool {
        let found = self.tokens.first() == Some(&token);
        if found {
            self.tokens = &self.tokens[1..];
        }
        found
    }

    fn either(&mut self) -> Result<bool, String> {
        let mut holds = self.both()?;
        while self.take("||") {
            holds |= self.both()?;
        }
        Ok(holds)
    }

    fn both(&mut self) -> Result<bool, String> {
        let mut holds = self.one()?;
        while self.take("&&") {
            holds &= self.one()?;
        }
        Ok(holds)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.take("!") {
            return Ok(!self.one()?);
        }
        if self.take("(") {
            let holds = self.either()?;
            return if self.take(")") { Ok(holds) } else { Err("a parenthesis is open".into()) };
        }
        let left = self.value()?;
        if self.take("==") {
            return Ok(left == self.value()?);
        }
        if self.take("!=") {
            return Ok(left != self.value()?);
        }
        for (token, order) in [("<", std::cmp::Ordering::Less), (">", std::cmp::Ordering::Greater)] {
            if self.take(token) {
                let right = self.value()?;
                let number = |text: &str| text.parse::<i64>().map_err(|_| format!("{text:?} is no number"));
                return Ok(number(&left)?.cmp(&number(&right)?) == order);
            }
        }
        Ok(left != "0")
    }

    /// What a name stands for, a name that stands for nothing being 0, and other words themselves after a comparison.
    fn value(&mut self) -> Result<String, String> {
        let (&word, rest) = self.tokens.split_first().ok_or("an expression ends early")?;
        if !word.chars().all(is_word) {
            return Err(format!("{word:?} where a name should be"));
        }
        self.tokens = rest;
        let is_name = word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        let is_number = word.chars().all(|c| c.is_ascii_digit());
        Ok(match self.defines.get(word) {
            Some(value) => value.to_owned(),
            None if is_name && !is_number => "0".into(),
            None => word.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(files: &[(&str, &str)], defines: Defines) -> Result<String, PreprocessError> {
        let source = |name: &str| files.iter().find(|f| f.0 == name).map(|f| f.1);
        preprocess(&source, "main", &defines)
    }

    fn text(main: &str, defines: Defines) -> String {
        run(&[("main", main)], defines).expect("a shader").replace('\n', " ").trim().to_owned()
    }

    #[test]
    fn branches_follow_expressions() {
        let main = "#if A && (B == two || !C)\nx\n#elif N > 3\ny\n#else\nz\n#endif";
        assert_eq!(text(main, Defines::new().flag("A", true).set("B", "two").flag("C", true)), "x");
        assert_eq!(text(main, Defines::new().set("A", 0).set("N", 4)), "y");
        assert_eq!(text(main, Defines::new().set("N", 3)), "z");
        assert_eq!(text("#if A != 2\nx\n#endif", Defines::new().set("A", 2)), "");
    }

    #[test]
    fn branches_nest_and_the_dark_side_is_silent() {
        let main = "#if A\n#if B\nab\n#else\na\n#endif\n#else\n#if B\nb\n#include \"nowhere\"\n#endif\n#endif";
        assert_eq!(text(main, Defines::new().flag("A", true)), "a");
        assert_eq!(text(main, Defines::new()), "");
    }

    #[test]
    fn names_are_whole_words() {
        let main = "#define TWO ONE + ONE\n#define ONE 1\nTWO TWOS TWO_ x.TWO // TWO";
        assert_eq!(text(main, Defines::new()), "1 + 1 TWOS TWO_ x.1 + 1 // TWO");
    }

    #[test]
    fn files_are_included_once() {
        let files = [("main", "#include \"a\"\n#include \"b\"\nm"), ("a", "#include \"b\"\na"), ("b", "b")];
        assert_eq!(run(&files, Defines::new()).expect("a shader"), "b\na\nm\n");
        let chosen = [("main", "#include \"quant/FORMAT.wgsl\""), ("quant/q8_0.wgsl", "q")];
        assert_eq!(run(&chosen, Defines::new().set("FORMAT", "q8_0")).expect("a shader"), "q\n");
    }

    #[test]
    fn mistakes_name_their_line() {
        let fails = |main: &str| run(&[("main", main)], Defines::new()).expect_err("a mistake").to_string();
        assert_eq!(fails("a\n#if A\nb"), "main:2: #if without #endif");
        assert_eq!(fails("#endif"), "main:1: #endif without #if");
        assert_eq!(fails("#if A\n#else\n#elif B\n#endif"), "main:3: #elif after #else");
        assert_eq!(fails("\n#includ \"x\""), "main:2: #includ is no directive");
        assert_eq!(fails("#include \"x\""), "main:1: x: there is no such shader");
        assert_eq!(fails("#if A +\n#endif"), "main:1: '+' in \"A +\"");
        assert_eq!(fails("#if (A\n#endif"), "main:1: a parenthesis is open");
        assert_eq!(fails("#define A B\n#define B A\nA"), "main:3: names that stand for each other");
    }
}
