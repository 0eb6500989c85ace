package inventory

import (
	"context"
	"iter"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/registry"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// listViolations returns the command that lists running images that the rules would refuse.
func listViolations(a *noun.App) *cobra.Command {
	var group string
	v := violations{}
	cmd := &cobra.Command{
		Use: "violations", Short: "List the running images whose pull the rules would refuse now",
		Long: "Asks the server for each running image whether its rules would refuse a pull of this digest by you.\n" +
			"Images of other registries, images that you may not pull, and images without a digest are not decided.\n" +
			"The command says how many there are, and --undecided lists them, too. The exit code is 3 if an image\n" +
			"would be refused.",
		Example: "  holdfast inventory violations --group acme\n" +
			"  holdfast inventory violations --group acme --place prod-eu --undecided",
		Args: cobra.NoArgs,
	}
	req := &findingspb.ListInventoryRequest{Check: true}
	a.RegisterRef(cmd, &group, "group", noun.Groups(), "only images recorded in `GROUP` and its subgroups")
	cmd.Flags().StringVar(&req.Place, "place", "", "only images at the place with `NAME`")
	cmd.Flags().BoolVar(&v.undecided, "undecided", false, "also list images for which nothing is known")
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) (err error) {
		if err := registry.ResolveGroup(ctx, a, group, &req.GroupUid); err != nil {
			return err
		}
		if err := v.notePlaces(ctx, a, req); err != nil {
			return err
		}
		running := a.Items(ctx, method("ListInventory"), req.ProtoReflect(), noun.Paging{})
		err = a.PrintList(ctx, violatingImages(), v.among(running))
		if err != nil {
			return err
		}
		v.note(a)
		if v.refused > 0 {
			return problem.New(problem.ExitNo, "")
		}
		return nil
	})
	return cmd
}

func method(name protoreflect.Name) protoreflect.MethodDescriptor {
	service := findingspb.File_holdfast_findings_v1_inventory_proto.Services().ByName("InventoryService")
	return service.Methods().ByName(name)
}

// violatingImages returns the Noun for running images with the decision about their pull.
func violatingImages() noun.Noun {
	n := runningImages()
	n.Use, n.One = "violations", "violation"
	n.Columns = output.Columns("place", "namespace=entry.namespace", "workload=entry.workload", "image=check.image",
		"decision=check.decision", "reason=check.reason")
	n.Wide = output.Columns("container=entry.container", "copies=entry.copies", "started=entry.startTime",
		"platform=check.platform", "repoUid=check.repoUid", "groupUid")
	return n
}

// violations counts the decisions about running images.
type violations struct {
	undecided                 bool // whether undecided images are listed
	allowed, refused, unknown int64
}

// among returns those images that the command lists, and counts all.
func (v *violations) among(all iter.Seq2[protoreflect.Message, error]) iter.Seq2[protoreflect.Message, error] {
	return func(yield func(protoreflect.Message, error) bool) {
		for m, err := range all {
			if err != nil {
				yield(nil, err)
				return
			}
			listed := false
			switch m.Interface().(*findingspb.RunningImage).GetCheck().GetDecision() {
			case findingspb.ImageDecision_IMAGE_DECISION_ALLOWED:
				v.allowed++
			case findingspb.ImageDecision_IMAGE_DECISION_REFUSED:
				v.refused++
				listed = true
			default:
				v.unknown++
				listed = v.undecided
			}
			if listed && !yield(m, nil) {
				return
			}
		}
	}
}

// note says how many images were decided, because an empty list alone does not say that nothing is wrong.
func (v *violations) note(a *noun.App) {
	if v.allowed+v.refused+v.unknown == 0 {
		a.Note("nothing is known: no current inventory lists an image")
		return
	}
	a.Note("of %s, %d would be refused, %d would not, and nothing is known about %d",
		noun.Count(v.allowed+v.refused+v.unknown, "running image"), v.refused, v.allowed, v.unknown)
}

// notePlaces says which places have stopped reporting, because their images are not listed.
func (v *violations) notePlaces(ctx context.Context, a *noun.App, req *findingspb.ListInventoryRequest) error {
	places := &findingspb.ListInventoryPlacesRequest{GroupUid: req.GetGroupUid()}
	for m, err := range a.Items(ctx, method("ListInventoryPlaces"), places.ProtoReflect(), noun.Paging{}) {
		if err != nil {
			return err
		}
		p := m.Interface().(*findingspb.InventoryPlace)
		if p.GetExpired() && (req.GetPlace() == "" || req.GetPlace() == p.GetName()) {
			a.Note("%s has stopped reporting, so its images are left out", p.GetName())
		}
	}
	return nil
}
