# Becomes process 1 of a pod: a root of its own that is read-only, the given mounts, and a user without a name.
#
#     pod.sh ROOT USER GROUP HOSTS "TREE..." "VOLUME=PATH..." COMMAND...
#
# Needs root, and namespaces of its own for mounts and processes.
set -e
root=$1 user=$2 group=$3 hosts=$4 trees=$5 mounts=$6
shift 6
mount -t tmpfs -o mode=0755 pod "$root"
mkdir "$root"/proc "$root"/dev "$root"/sys "$root"/etc
mount -t proc proc "$root"/proc
mount --rbind /dev "$root"/dev
mount --rbind /sys "$root"/sys
cp "$hosts" "$root"/etc/hosts
for entry in $mounts; do
    mkdir -p "$root${entry#*=}"
    mount --bind "${entry%%=*}" "$root${entry#*=}"
done
for tree in /usr /bin /sbin /lib /lib64 $trees; do
    if [ -L "$tree" ]; then
        cp -P "$tree" "$root$tree"
    elif [ -d "$tree" ] && [ ! -e "$root$tree" ]; then
        mkdir -p "$root$tree"
        mount --bind "$tree" "$root$tree"
        mount -o remount,bind,ro "$root$tree"
    fi
done
mount -o remount,ro "$root"
exec chroot "$root" setpriv --reuid "$user" --regid "$group" --groups "$group" --no-new-privs --bounding-set=-all \
    --inh-caps=-all "$@"
