// A driver of GPUs that are not there: it publishes them in a ResourceSlice and prepares claims for
// them by CDI. A container is told each device that its claims were given, in a variable
// FAKE_GPU_<number>=<device>, with what was consumed of it where others share it.
//
// What is prepared lies in files only, one for each claim, so a driver that starts again knows it. It
// refuses a device that another claim has: nobody but this program sees both.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

const kind = "carrel.test/gpu"

type edits struct {
	Env []string `json:"env"`
}

type cdiDevice struct {
	Name           string `json:"name"`
	ContainerEdits edits  `json:"containerEdits"`
}

// A CDI specification, and which devices it is about.
type prepared struct {
	Version     string            `json:"cdiVersion"`
	Kind        string            `json:"kind"`
	Annotations map[string]string `json:"annotations"`
	Devices     []cdiDevice       `json:"devices"`
}

type driver struct {
	name, node, specs string
	stop              context.CancelFunc
}

func main() {
	name := flag.String("driver", "gpu.nvidia.com", "name of the driver")
	node := flag.String("node", "", "name of the node")
	access := flag.String("kubeconfig", "", "how to reach the API server")
	kubelet := flag.String("kubelet", "", "folder of the kubelet")
	specs := flag.String("specs", "", "where the container runtime looks for CDI specifications")
	names := flag.String("devices", "", "names of the devices, with commas")
	memory := flag.String("memory", "80Gi", "memory of each of them")
	shared := flag.Bool("shared", false, "several claims may have parts of a device's memory")
	halves := flag.Bool("halves", false, "each device is offered as a whole and as two halves, of which it has counters")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &driver{*name, *node, *specs, stop}, *access, *kubelet, slices(*names, *memory, *shared, *halves)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, d *driver, access, kubelet string, offered []resourceslice.Slice) error {
	config, err := clientcmd.BuildConfigFromFlags("", access)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	data := filepath.Join(kubelet, "plugins", d.name)
	if err := errors.Join(os.MkdirAll(data, 0o700), os.MkdirAll(d.specs, 0o700)); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(d.name),
		kubeletplugin.NodeName(d.node),
		kubeletplugin.KubeClient(client),
		kubeletplugin.PluginDataDirectoryPath(data),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(kubelet, "plugins_registry")),
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	if err := registered(ctx, helper); err != nil {
		return err
	}
	pool := resourceslice.Pool{Slices: offered}
	pools := map[string]resourceslice.Pool{d.node: pool}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: pools}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// Wait until the kubelet knows the driver, and print it: what is bound earlier to a node whose devices
// are offered fails there, and is tried again a minute later.
func registered(ctx context.Context, helper *kubeletplugin.Helper) error {
	for {
		if status := helper.RegistrationStatus(); status != nil {
			if !status.PluginRegistered {
				return errors.New(status.Error)
			}
			fmt.Println("registered")
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func slices(names, memory string, shared, halves bool) []resourceslice.Slice {
	offered := devices(names, memory, shared)
	if !halves {
		return []resourceslice.Slice{{Devices: offered}}
	}
	var sets []resourceapi.CounterSet
	var all []resourceapi.Device
	for _, one := range offered {
		sets = append(sets, resourceapi.CounterSet{Name: one.Name, Counters: slots(0, 8)})
		one.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: one.Name, Counters: slots(0, 8)}}
		all = append(all, one)
		for first := 0; first < 8; first += 4 {
			profile := "3g.40gb"
			all = append(all, resourceapi.Device{
				Name:             fmt.Sprintf("%s-half-%d", one.Name, first),
				Attributes:       map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"profile": {StringValue: &profile}},
				ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: one.Name, Counters: slots(first, 4)}},
			})
		}
	}
	return []resourceslice.Slice{{SharedCounters: sets}, {Devices: all}}
}

func slots(first, count int) map[string]resourceapi.Counter {
	found := map[string]resourceapi.Counter{}
	for slot := first; slot < first+count; slot++ {
		found[fmt.Sprintf("memory-slice-%d", slot)] = resourceapi.Counter{Value: resource.MustParse("1")}
	}
	return found
}

func devices(names, memory string, shared bool) []resourceapi.Device {
	model := "Fake GPU"
	var found []resourceapi.Device
	for _, name := range strings.Split(names, ",") {
		uuid := "GPU-" + name
		one := resourceapi.Device{
			Name: name,
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"productName": {StringValue: &model},
				"uuid":        {StringValue: &uuid},
			},
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse(memory)}},
		}
		if shared {
			one.AllowMultipleAllocations = &shared
		}
		found = append(found, one)
	}
	return found
}

func (d *driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		given, err := d.prepare(claim)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: given, Err: err}
	}
	return results, nil
}

func (d *driver) prepare(claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	written := prepared{Version: "0.6.0", Kind: kind, Annotations: map[string]string{}}
	var given []kubeletplugin.Device
	for number, one := range claim.Status.Allocation.Devices.Results {
		if one.Driver != d.name {
			continue
		}
		if one.ShareID == nil {
			if owner := d.owner(one.Device); owner != "" && owner != string(claim.UID) {
				return nil, fmt.Errorf("device %s is prepared for the claim %s", one.Device, owner)
			}
			written.Annotations["carrel.test/"+one.Device] = "whole"
		}
		unique := fmt.Sprintf("%s-%d", claim.UID, number)
		told := fmt.Sprintf("FAKE_GPU_%d=%s%s", number, one.Device, consumed(one))
		written.Devices = append(written.Devices, cdiDevice{unique, edits{[]string{told}}})
		given = append(given, kubeletplugin.Device{
			Requests:     []string{one.Request},
			PoolName:     one.Pool,
			DeviceName:   one.Device,
			CDIDeviceIDs: []string{kind + "=" + unique},
			ShareID:      one.ShareID,
		})
	}
	text, err := json.Marshal(written)
	if err != nil {
		return nil, err
	}
	unfinished := d.file(claim.UID) + ".unfinished"
	if err := os.WriteFile(unfinished, text, 0o600); err != nil {
		return nil, err
	}
	return given, os.Rename(unfinished, d.file(claim.UID))
}

// What a claim consumes of a device that others share, such as " memory=10Gi".
func consumed(one resourceapi.DeviceRequestAllocationResult) string {
	var parts []string
	for name, amount := range one.ConsumedCapacity {
		parts = append(parts, fmt.Sprintf(" %s=%s", name, amount.String()))
	}
	sort.Strings(parts)
	return strings.Join(parts, "")
}

// The claim that a device is prepared for; empty when none.
func (d *driver) owner(device string) string {
	files, _ := filepath.Glob(filepath.Join(d.specs, "*.json"))
	for _, file := range files {
		var found prepared
		text, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(text, &found) != nil {
			continue
		}
		if found.Annotations["carrel.test/"+device] != "" {
			return strings.TrimSuffix(filepath.Base(file), ".json")
		}
	}
	return ""
}

func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		err := os.Remove(d.file(claim.UID))
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		results[claim.UID] = err
	}
	return results, nil
}

func (d *driver) file(claim types.UID) string {
	return filepath.Join(d.specs, string(claim)+".json")
}

// HandleError says what went wrong in the background; what will not come right by itself ends it.
func (d *driver) HandleError(_ context.Context, err error, message string) {
	fmt.Fprintln(os.Stderr, message, err)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.stop()
	}
}
