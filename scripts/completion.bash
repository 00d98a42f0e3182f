# Completion of Polder's tools and of colocate for bash: source this file. In zsh: autoload -U +X bashcompinit && bashcompinit first.
# Installed as /usr/share/bash-completion/completions/collect, with links of the other commands' names (make install does that).
# The candidates come from the tools themselves, from their flags (--generate-bash-completion), and from colocate --help.
# shellcheck shell=bash

# _polder_ask COMMAND WORD...: the candidates for the last word.
_polder_ask() {
	mapfile -t COMPREPLY < <("$@" --generate-bash-completion 2>/dev/null)
	[ "${#COMPREPLY[@]}" -ne 1 ] || [[ ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
}

_polder_complete() {
	_polder_ask "${COMP_WORDS[@]:0:COMP_CWORD+1}"
}

# colocate has options of its own; behind -- are those of report.
_polder_colocate() {
	local i word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} directory report=report
	# The tools may be beside it or where it searches for them itself, not only on the PATH.
	directory=$(dirname "$(command -v -- "${COMP_WORDS[0]}")" 2>/dev/null)
	for directory in "${POLDER_BIN:-}" "$directory/../bin"; do
		if [ -n "$directory" ] && [ -x "$directory/report" ]; then
			report=$directory/report
			break
		fi
	done
	for ((i = 1; i < COMP_CWORD; i++)); do
		if [ "${COMP_WORDS[i]}" = -- ]; then
			_polder_ask "$report" "${COMP_WORDS[@]:i+1:COMP_CWORD-i}"
			return
		fi
	done
	case $before in
	--action) # the values are in its help
		mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" --help 2>/dev/null | sed -nE 's/^  --action .*: (.*) \(.*/\1/p' | tr -d ,)" -- "$word")
		;;
	--classify | --advise | --evict | --journal | --root | --for | --interval) COMPREPLY=() ;; # files, or what is typed
	*) mapfile -t COMPREPLY < <(compgen -W "-- $("${COMP_WORDS[0]}" --help 2>/dev/null | grep -oE '^  (-h, )?--[a-z-]+' | sed 's/.* //')" -- "$word") ;;
	esac
}

complete -o default -F _polder_complete collect advise isolate report evict
complete -o default -F _polder_colocate colocate
