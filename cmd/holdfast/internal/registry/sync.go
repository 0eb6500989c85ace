package registry

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
)

// syncs returns the Noun for repos that are synced from another repo.
func syncs() noun.Noun {
	return noun.Noun{
		Area: "registry", Use: "sync", One: "repo",
		Message: noun.MessageOf(&ocipb.Sync{}),
		Columns: output.Columns(output.PathOf("repo", "uid"), output.PathOf("follows", "sourceUid"), "state",
			"since=stateTime", "tags", "error"),
		Wide: output.Columns("successTime", "dueTime", "expirationTime", "failedTags",
			output.NameOf("set by", "setByUid")),
	}
}

// syncCommand returns the commands about repos that are synced from another repo.
func syncCommand(a *noun.App) *cobra.Command {
	cmd := a.Branch("sync", "Show and run the syncing of repos", syncStatus(a), syncList(a), syncRun(a), syncStop(a))
	cmd.Long = "A repo can follow another repo, its source. It then has exactly the tags of the source, and accepts no\n" +
		"pushed tags. To make a repo follow another, use holdfast registry repos create or update with --source."
	return cmd
}

func syncStatus(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status REPO", Short: "Show the sync status of a repo",
		Example: "  holdfast registry sync status acme/prod/app",
	}
	return a.About(Repos(), cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		m, err := signin.Call(ctx, ocipb.NewSyncsServiceClient(a).GetSync, &ocipb.GetSyncRequest{Uid: uid}, "uid=REPO")
		if err != nil {
			return err
		}
		return a.Show(ctx, syncs().View(), m)
	})
}

func syncList(a *noun.App) *cobra.Command {
	var p noun.Paging
	cmd := &cobra.Command{
		Use: "list GROUP", Short: "List the repos below a group that follow another repo", Aliases: []string{"ls"},
		Example: "  holdfast registry sync list acme/prod",
	}
	a.About(noun.Groups(), cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		return a.PrintAll(ctx, syncs(), &ocipb.ListSyncsRequest{GroupUid: uid}, p)
	})
	p.Register(cmd)
	return cmd
}

func syncRun(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "run REPO", Short: "Sync a repo with its source now",
		Long: "A repo is synced soon after its source changes, and at least once an hour. This command requests a run\n" +
			"now and does not wait for it. To see the result: holdfast registry sync status",
		Example: "  holdfast registry sync run acme/prod/app",
	}
	noun.AddDryRun(cmd)
	return a.About(Repos(), cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
		m, err := a.Write(ctx, cmd, syncs().Method("Run"), (&ocipb.RunSyncRequest{Uid: uid}).ProtoReflect(),
			map[string]string{"uid": "REPO"})
		if err != nil {
			return err
		}
		return a.Show(ctx, syncs().View(), m.Interface())
	})
}

func syncStop(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "stop REPO", Short: "Stop syncing a repo",
		Long: "The repo keeps its tags and accepts pushes. To make it follow its source again, use\n" +
			"holdfast registry repos update with --source.",
		Example: "  holdfast registry sync stop acme/prod/app",
	}
	noun.AddDryRun(cmd)
	return a.About(Repos(), cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
		req := &registrypb.UpdateRepoRequest{
			Repo: &registrypb.Repo{Uid: uid}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"sync_config"}},
		}
		m, err := a.Write(ctx, cmd, Repos().Method("Update"), req.ProtoReflect(),
			map[string]string{"repo.uid": "REPO", "uid": "REPO"})
		if err != nil {
			return err
		}
		return a.Show(ctx, Repos().View(), m.Interface())
	})
}
