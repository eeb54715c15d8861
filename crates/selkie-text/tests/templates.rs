//! Templates in the style of published models, shortened, and templates that mean harm.

use selkie_text::{ChatTemplate, CivilTime, Error, RenderInput};
use serde_json::{Value, json};

fn conversation() -> Value {
    json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi <b>&</b>"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello"},
        {"role": "user", "content": "Bye"},
    ])
}

fn render(source: &str, input: &RenderInput<'_>) -> String {
    ChatTemplate::new("test", source).unwrap().render(input).unwrap()
}

fn fails(source: &str) -> String {
    let messages = conversation();
    let rendered = ChatTemplate::new("test", source).and_then(|template| template.render(&RenderInput::new(&messages)));
    let line = rendered.unwrap_err().to_string();
    assert!(line.starts_with("chat template `test`") && !line.contains('\n'), "{line}");
    line
}

#[test]
fn llama3() {
    let source = r#"{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"#;
    let messages = json!([
        {"role": "user", "content": " 1 < 2 "},
        {"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": {"z": 1, "a": [1.5, "ü"]}}}]},
    ]);
    let tools = json!([{"type": "function", "function": {"name": "add", "a": {}}}]);
    let mut input = RenderInput { bos_token: "<bos>", tools: Some(&tools), ..RenderInput::new(&messages) };
    let expected = "<bos><|start_header_id|>system<|end_header_id|>\n\nToday Date: 26 Jul 2024\n\n{\n    \"type\": \
        \"function\",\n    \"function\": {\n        \"name\": \"add\",\n        \"a\": {}\n    }\n}\n\n<|eot_id|>\
        <|start_header_id|>user<|end_header_id|>\n\n1 < 2<|eot_id|>{\"name\": \"add\", \"parameters\": \
        {\"z\": 1, \"a\": [1.5, \"ü\"]}}<|start_header_id|>assistant<|end_header_id|>\n\n";
    assert_eq!(render(source, &input), expected);
    input.now = Some(CivilTime::from_unix(1_767_225_600));
    assert!(render(source, &input).contains("Today Date: 01 Jan 2026\n"));
    let extra = json!({"date_string": "now"});
    input.extra = extra.as_object();
    assert!(render(source, &input).contains("Today Date: now\n"));
    let two = json!([{"role": "assistant", "tool_calls": [1, 2]}]);
    let error = ChatTemplate::new("tool_use", source).unwrap().render(&RenderInput::new(&two)).unwrap_err();
    let line = error.to_string();
    assert_eq!(line, "chat template `tool_use`, line 30: This model only supports single tool-calls at once!");
}

#[test]
fn qwen3() {
    let source = r#"{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {{- '<think>' + reasoning_content.strip('\n') + '</think>' }}
        {%- endif %}
        {{- '<|im_start|>' + message.role + '\n' + content }}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}"#;
    let messages = conversation();
    let extra = json!({"enable_thinking": false});
    let tools = json!([{"b": "<&'\">", "a": null}]);
    let input = RenderInput { extra: extra.as_object(), tools: Some(&tools), ..RenderInput::new(&messages) };
    assert_eq!(
        render(source, &input),
        "<|im_start|>system\nBe brief.\n\n\n{\"b\": \"<&'\\\">\", \"a\": null}<|im_end|>\n<|im_start|>user\nHi <b>&</b><|im_end|>\n\
         <|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    );
    let tool =
        json!([{"role": "user", "content": "x"}, {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}]);
    assert_eq!(
        render(source, &RenderInput { add_generation_prompt: false, ..RenderInput::new(&tool) }),
        "<|im_start|>user\nx<|im_end|>\n<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n\
         </tool_response><|im_end|>\n"
    );
}

#[test]
fn mistral() {
    let source = r#"{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
        {%- if message == user_messages[-1] %}{{ "!" }}{% endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"].split("</think>")[-1]|trim + eos_token }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, not " + message["role"]) }}
    {%- endif %}
{%- endfor %}
"#;
    let messages = conversation();
    let input = RenderInput { bos_token: "<s>", eos_token: "</s>", ..RenderInput::new(&messages) };
    assert_eq!(render(source, &input), "<s>[INST] Hi <b>&</b>[/INST] Hello</s>[INST] Be brief.\n\nBye[/INST]!");
}

#[test]
fn phi_smollm_granite_deepseek() {
    let messages = conversation();
    let input = RenderInput { now: Some(CivilTime::from_unix(0)), ..RenderInput::new(&messages) };
    // phi3: one line, conditions inside expressions.
    let phi3 = "{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}";
    assert_eq!(
        render(phi3, &input),
        "<|system|>\nBe brief.<|end|>\n<|user|>\nHi <b>&</b><|end|>\n<|user|>\nBye<|end|>\n<|assistant|>\n"
    );
    // smollm3: generation blocks, dates, replace, defaults.
    let smollm3 = r#"{%- set enable_thinking = enable_thinking | default(true) -%}
{%- if "/no_think" in messages[0].content -%}{%- set enable_thinking = false -%}{%- endif -%}
{%- set today = strftime_now("%d %B %Y") -%}
{{- today ~ "|" ~ messages[0].content.replace("Be ", "").rstrip() ~ "|" ~ enable_thinking -}}
{% for message in messages %}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "assistant" -%}
        {% generation %}
        {{- content.lstrip("\n") + "<|im_end|>\n" -}}
        {% endgeneration %}
    {%- endif -%}
{% endfor %}
"#;
    let text = render(smollm3, &input);
    assert!(text.starts_with("01 January 1970|brief.|") && text.contains("Hello<|im_end|>"), "{text:?}");
    // granite: documents, loop neighbours, items.
    let granite = r"{% for document in documents %}{% for key, value in document.items() %}{{ key }}={{ value }};{% endfor %}{% endfor %}
{%- for message in messages %}{% if loop.previtem is defined and loop.previtem.role == message.role %}twice{% endif %}{{ message.get('name', '-') }}{{ loop.nextitem is defined }}{% endfor %}
{%- for message in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{% if message.role == 'system' %}{% continue %}{% endif %}{{ message.role.upper() }}{% endfor %}";
    let documents = json!([{"title": "t", "text": 1}]);
    let with_documents = RenderInput { documents: Some(&documents), ..input };
    assert_eq!(render(granite, &with_documents), "title=t;text=1;-True-True-True-FalseUSER");
    // deepseek: name spaces that gather text, macros.
    let deepseek = r"{% set ns = namespace(is_first=true, system='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first %}{% set ns.system = ns.system + message['content'] %}{% set ns.is_first = false %}{%- endif %}{%- endif %}{%- endfor %}{%- macro user(text) -%}<｜User｜>{{ text }}{%- endmacro -%}{{ bos_token }}{{ ns.system }}{{ user(messages[1].content) }}";
    assert_eq!(render(deepseek, &input), "Be brief.<｜User｜>Hi <b>&</b>");
}

#[test]
fn values_as_python_writes_them() {
    let messages = json!([]);
    let input = RenderInput::new(&messages);
    let show = |source: &str| render(source, &input);
    assert_eq!(
        show("{{ true }} {{ none }} {{ 1.0 }} {{ [1, 'a', none] }} {{ {'k': \"it's\"} }}"),
        "True None 1.0 [1, 'a', None] {'k': \"it's\"}"
    );
    assert_eq!(show("{{ true|string }}{{ missing }}{{ missing is defined }}"), "TrueFalse");
    assert_eq!(
        show("{{ 'a-b-c'.rsplit('-', 1) }} {{ 'a-b-c'.partition('-')[2] }} {{ 'xay'.removeprefix('x') }}"),
        "['a-b', 'c'] b-c ay"
    );
    assert_eq!(
        show("{{ {'b': 1, 'a': [true]} | tojson(separators=(',', ':'), sort_keys=true) }}"),
        r#"{"a":[true],"b":1}"#
    );
    assert_eq!(show("{{ '<é>' | tojson }}{{ '<é>' | tojson(ensure_ascii=true) }}"), "\"<é>\"\"<\\u00e9>\"");
    // trim_blocks and lstrip_blocks, and the last line end of the source.
    assert_eq!(show("  {% if true %}\n  x\n  {% endif %}\ny\n"), "  x\ny");
}

#[test]
fn builtin() {
    let messages = json!([{"role": "system", "content": "S"}, {"role": "user", "content": " U "}, {"role": "assistant", "content": "A"}]);
    let input = RenderInput { bos_token: "<b>", eos_token: "<e>", ..RenderInput::new(&messages) };
    let show = |name: &str| ChatTemplate::builtin(name).unwrap().render(&input).unwrap();
    assert_eq!(
        show("chatml"),
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n U <|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(
        show("gemma"),
        "<b><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n<start_of_turn>model\n"
    );
    assert_eq!(show("llama2"), "<b>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A <e>");
    assert_eq!(
        show("llama3"),
        "<b><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    );
    let error = ChatTemplate::builtin("x").unwrap_err();
    assert!(matches!(error, Error::UnknownTemplate { .. }));
    assert_eq!(error.to_string(), "no built-in chat template `x` (known: chatml, gemma, llama2, llama3)");
}

#[test]
fn failures_say_where() {
    assert_eq!(fails("a\n{{ raise_exception('no\nway') }}"), "chat template `test`, line 2: no way");
    assert!(fails("\n\n{% if %}").contains(", line 3: "));
    assert!(fails("{{ messages[9].content.strip() }}").contains(", line 1: "));
    assert!(fails("{{ strftime_now('%Y') }}").contains("strftime_now"));
    assert!(fails("{% include 'other' %}").contains("other"));
    assert!(fails("{{ messages | tojson(indent=99999999) }}").contains("indent"));
    assert!(fails(&"{% if true %}".repeat(10_000)).contains("line"));
    assert!(fails(&"x".repeat(5 << 20)).contains("bytes of source"));
}

#[test]
fn templates_that_never_end_do() {
    let spent = "it runs for too long or makes too much text";
    for source in [
        "{% for a in range(100000) %}{% for b in range(100000) %}{% set c = a * b %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='xxxxxxxxxxxxxxxx') %}{% for a in range(1000) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{{ 'x' * 100000000000 }}",
    ] {
        let line = fails(source);
        assert!(line.contains(spent) || line.contains("too large"), "{line}");
    }
    let line = fails("{% for a in range(100000) %}{{ 'x' * 100000 }}{% endfor %}");
    assert!(line.contains("longer than") || line.contains(spent), "{line}");
    fails("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
}
