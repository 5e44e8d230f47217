# What bash offers behind the commands of Oarlock. Made by `oarlock completion bash`.
_oarlock_words() {
    case "$1" in
    'oar_resources_add') echo '-T --use-threads -H --hosts -C --cpus -c --cores -t --threads -g --gpus --host0 --cpu0 --core0 --thread0 --gpu0 --cpusets --cpuset --cputopo --gpudevices --gputopo -P --host-prefix -S --host-suffix -a --auto-offset -p --no-create-properties -A --append -R --repair -o --write-to -Y --yaml --debug --server -h --help -V --version' ;;
    'oar_resources_init') echo '-H -T -o -x -y -v -e -n -p -c --server -h --help -V --version' ;;
    'oaraccounting') echo '--reinitialize --delete-before --server -h --help -V --version' ;;
    'oaradmissionrules') echo '-S --show-all -s --show -I --id -f --full -H --no-header -w --to-file -n --new -m --modify -e --edit -r --from-file -P --priority -Y --enabled -N --disabled -d --delete -J --json --server -h --help -V --version' ;;
    'oarcp') echo '-h --help -V --version' ;;
    'oardel') echo '-c --checkpoint -s --signal -b --besteffort --array --sql --force-terminate-finishing-job --server -h --help -V --version' ;;
    'oarhold') echo '-r --running --array --sql --server -h --help -V --version' ;;
    'oarmonitor') echo '-j --job -f --frequency -J --json --server -h --help -V --version' ;;
    'oarmonitor_graph_gen') echo '-j --job --server -h --help -V --version' ;;
    'oarnodes') echo '-a --all -r --resource -s --state -l --list --summary -e --events --sql -D --dumper -X --xml -Y --yaml -J --json --server -h --help -V --version' ;;
    'oarnodesetting') echo '-a --add -h --hostname -f --file -r --resource --sql -s --state -n --no-wait -m --maintenance -d --drain -p --property --last-property-value --server --help -V --version' ;;
    'oarnotify') echo '-l --list-queues -e --enable-queue -d --disable-queue -E --Enable-all-queues -D --Disable-all-queues --add-queue --change-queue --remove-queue --force -J --json --server -h --help -V -v --version' ;;
    'oarprint') echo '-f -P -F -T -C -l -h --help --version' ;;
    'oarproperty') echo '-l --list -a --add -c --varchar -d --delete -r --rename -J --json -q --quiet --server -h --help -V --version' ;;
    'oarremoveresource') echo '--server -h --help -V --version' ;;
    'oarresume') echo '--array --sql --server -h --help -V --version' ;;
    'oarsh') echo '-t -T -X -n -h --help -V --version' ;;
    'oarstat') echo '-j --job -u --user --array --sql -f --full -s --state -c --compact --format -e --events -p --properties --usage --why -g --gantt --accounting -D --dumper -X --xml -Y --yaml -J --json --server -h --help -V --version' ;;
    'oarsub') echo '-l --resource -p --property -q --queue -t --type -n --name --project -d --directory -O --stdout -E --stderr -S --scanscript --array --array-param-file -r --reservation -a --anterior --hold --checkpoint --signal --notify --resubmit -k --use-job-key -i --import-job-key-from-file --import-job-key-inline -e --export-job-key-to-file --ssh-private-key --ssh-public-key --dry-run --advise -I --interactive --x11 -C --connect -s --stagein --stagein-md5sum -D --dumper -X --xml -Y --yaml -J --json --server -h --help -V --version' ;;
    'oarwalltime') echo '--force --delay-next-jobs -J --json --server -h --help -V --version' ;;
    'oarlock') echo '-h --help --version config rules maintenance quotas unknown backup restore migrate check serve demo agent collect measure node portal setup archive desktop discover doctor audit token login samples meter findings digest mail relay report simulate shadow import-oar import-slurm purge slurm sources lustre-proxy completion' ;;
    'oarlock config') echo '-h --help -J --json' ;;
    'oarlock rules') echo '-h --help list test' ;;
    'oarlock rules list') echo '-h --help -J --json --state' ;;
    'oarlock rules test') echo '-h --help -v --verbose --state' ;;
    'oarlock maintenance') echo '-h --help add list remove' ;;
    'oarlock maintenance add') echo '-h --help --where --server -J --json' ;;
    'oarlock maintenance list') echo '-h --help --server -J --json' ;;
    'oarlock maintenance remove') echo '-h --help --server' ;;
    'oarlock quotas') echo '-h --help -u --user --at -J --json --server check add remove' ;;
    'oarlock quotas check') echo '-h --help' ;;
    'oarlock quotas add') echo '-h --help --resources --jobs --hours --server' ;;
    'oarlock quotas remove') echo '-h --help --server' ;;
    'oarlock unknown') echo '-h --help list end' ;;
    'oarlock unknown list') echo '-h --help -J --json --server' ;;
    'oarlock unknown end') echo '-h --help --server' ;;
    'oarlock backup') echo '-h --help --samples --state --config -J --json' ;;
    'oarlock restore') echo '-h --help --state --config -J --json' ;;
    'oarlock migrate') echo '-h --help --down-to --state --config -J --json' ;;
    'oarlock check') echo '-h --help --state --config --repair --live -J --json' ;;
    'oarlock serve') echo '-h --help --state --config --standby' ;;
    'oarlock demo') echo '-h --help --tour --user' ;;
    'oarlock agent') echo '-h --help --layout --layouts-file --all-cgroups --scratch --redfish --cluster --period --enable --disable --enable-perfhw --perfhw-list --enable-RAPL --enable-temperature --names --listen --tls-certificate --tls-key --send --token-file --node --ca --scrape-token-file --open-to-all --json --csv --push --names-file --look-up --database --slurm-cluster --config --control --colmet --control-zmq --control-keys -v --verbose set show' ;;
    'oarlock agent set') echo '-h --help --period --enable --disable --enable-perfhw --perfhw-list --enable-RAPL --enable-temperature --names --keep --control' ;;
    'oarlock agent show') echo '-h --help --control' ;;
    'oarlock collect') echo '-h --help --listen --state --config --zmq --zmq-allow --zmq-senders --zmq-perfhw-list --look-up --database' ;;
    'oarlock measure') echo '-h --help --period --enable --disable --perfhw-list --for --reset --server' ;;
    'oarlock node') echo '-h --help install clean' ;;
    'oarlock node install') echo '-h --help --key --to --config --program --account' ;;
    'oarlock node clean') echo '-h --help --dry-run --gone -J --json' ;;
    'oarlock portal') echo '-h --help --source --listen --state --config' ;;
    'oarlock setup') echo '-h --help server login node' ;;
    'oarlock setup server') echo '-h --help --account --standby --dry-run --undo --root' ;;
    'oarlock setup login') echo '-h --help --server --ca --relay --key --dry-run --undo --root' ;;
    'oarlock setup node') echo '-h --help --from --dry-run --undo --root' ;;
    'oarlock archive') echo '-h --help status check thin import export pin unpin pins' ;;
    'oarlock archive status') echo '-h --help --state --config -J --json' ;;
    'oarlock archive check') echo '-h --help --state --config -J --json' ;;
    'oarlock archive thin') echo '-h --help --keep-days --state --config -J --json' ;;
    'oarlock archive import') echo '-h --help --state --config -J --json' ;;
    'oarlock archive export') echo '-h --help --colmet --cluster --parquet -o --output --state --config -J --json' ;;
    'oarlock archive pin') echo '-h --help --cluster -J --json --server' ;;
    'oarlock archive unpin') echo '-h --help --cluster --server' ;;
    'oarlock archive pins') echo '-h --help -J --json --server' ;;
    'oarlock desktop') echo '-h --help --token-file --state --ca' ;;
    'oarlock discover') echo '-h --help -f --file -x --execute -J --json --threads --user --config --server' ;;
    'oarlock doctor') echo '-h --help --user -q --quiet -J --json --state --config' ;;
    'oarlock audit') echo '-h --help -u --user -j --job --since --last --check -J --json --server' ;;
    'oarlock token') echo '-h --help add list revoke' ;;
    'oarlock token add') echo '-h --help --node --relay --scripts --cluster --days --save -o --output --server' ;;
    'oarlock token list') echo '-h --help -J --json --server' ;;
    'oarlock token revoke') echo '-h --help --server' ;;
    'oarlock login') echo '-h --help -J --json --server' ;;
    'oarlock samples') echo '-h --help --cluster -m --metric --since --until -o --output --csv -J --json --server' ;;
    'oarlock meter') echo '-h --help --since --until --by -J --json --server' ;;
    'oarlock findings') echo '-h --help --cluster --since -u --user --project --rules --facts -J --json --server' ;;
    'oarlock digest') echo '-h --help --dry-run --server' ;;
    'oarlock mail') echo '-h --help --on --off -J --json --server' ;;
    'oarlock relay') echo '-h --help --key --listen --ca' ;;
    'oarlock report') echo '-h --help -u --user --project --since --month --cluster --pdf -w --watch -J --json --server' ;;
    'oarlock simulate') echo '-h --help --policy --resources --ties --full --no-predictions --since --until --shake --shift --seed --busy-watts --idle-watts --off-watts --idle-timeout -J --json --csv --html' ;;
    'oarlock shadow') echo '-h --help --source --recorded --record --period --for --policy -J --json --html --config' ;;
    'oarlock import-oar') echo '-h --help --password-file --quotas --rules --state --config -J --json' ;;
    'oarlock import-slurm') echo '-h --help --conf --sacct --database --password-file --show-sacct --rules --state --config -J --json' ;;
    'oarlock purge') echo '-h --help --before --name --dry-run -J --json --server' ;;
    'oarlock slurm') echo '-h --help install remove' ;;
    'oarlock slurm install') echo '-h --help --dry-run' ;;
    'oarlock slurm remove') echo '-h --help --dry-run' ;;
    'oarlock sources') echo '-h --help slurm-scripts slurm robinhood' ;;
    'oarlock sources slurm-scripts') echo '-h --help --send --token-file --ca --spool --sent --once' ;;
    'oarlock sources slurm') echo '-h --help --grant --cluster --database --account --host' ;;
    'oarlock sources robinhood') echo '-h --help --grant --database --account --host' ;;
    'oarlock lustre-proxy') echo '-h --help --upstream --listen --look-up --database --slurm-cluster --cluster --tls-certificate --tls-key --scrape-token-file --open-to-all' ;;
    'oarlock completion') echo '-h --help' ;;
    *) return 1 ;;
    esac
}

_oarlock_complete() {
    local current=${COMP_WORDS[COMP_CWORD]} path=${COMP_WORDS[0]##*/} word
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        _oarlock_words "$path $word" >/dev/null && path="$path $word"
    done
    for word in $(compgen -W "$(_oarlock_words "$path")" -- "$current"); do
        # Options are offered to who begins one; elsewhere names of files are (`-o default`).
        if [[ $current == -* || $word != -* ]]; then COMPREPLY+=("$word"); fi
    done
}

complete -o default -F _oarlock_complete oar_resources_add oar_resources_init oaraccounting oaradmissionrules oarcp oardel oarhold oarmonitor oarmonitor_graph_gen oarnodes oarnodesetting oarnotify oarprint oarproperty oarremoveresource oarresume oarsh oarstat oarsub oarwalltime oarlock
