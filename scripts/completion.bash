# Completion of Polder's tools for bash: source this file, or copy it to /usr/share/bash-completion/completions/collect
# (and link it to the other tools' names). The tools themselves say what can follow (--generate-bash-completion).
# shellcheck shell=bash

_polder_complete() {
	local word=${COMP_WORDS[COMP_CWORD]} words
	words=$("${COMP_WORDS[@]:0:COMP_CWORD}" "$word" --generate-bash-completion 2>/dev/null)
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -o default -F _polder_complete collect advise isolate report evict
