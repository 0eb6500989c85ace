package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
)

// versions is what `version` prints.
type versions struct {
	Client clientBuild    `json:"client"`
	Server *serverVersion `json:"server,omitempty"`
}

type clientBuild struct {
	Version   string `json:"version"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

type serverVersion struct {
	API         string   `json:"api"`
	Version     string   `json:"version"`
	GoVersion   string   `json:"goVersion"`
	APIVersions []string `json:"apiVersions"`
}

func (a *app) version() *cobra.Command {
	var clientOnly bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version of this command and of the server", Args: cobra.NoArgs,
		RunE: a.do(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			v := versions{Client: clientBuild{clientVersion(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}}
			if !clientOnly {
				server, err := a.serverVersion(ctx)
				if err != nil {
					a.note("the server's version is not known: %v", err)
				}
				v.Server = server
			}
			return a.printVersions(v)
		}),
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "do not ask the server")
	return cmd
}

func (a *app) serverVersion(ctx context.Context) (*serverVersion, error) {
	v, err := call(ctx, accesspb.NewAccessServiceClient(a).GetVersion, &accesspb.GetVersionRequest{}, nil)
	if err != nil {
		return nil, err
	}
	api, err := a.server()
	return &serverVersion{api.value, v.GetVersion(), v.GetGoVersion(), v.GetApiVersions()}, err
}

func (a *app) printVersions(v versions) error {
	if a.settings.output == "json" {
		return a.json(v)
	}
	fmt.Fprintf(a.out, "client %s (%s, %s)\n", v.Client.Version, v.Client.GoVersion, v.Client.Platform)
	if s := v.Server; s != nil {
		fmt.Fprintf(a.out, "server %s (%s, %s) at %s\n", s.Version, s.GoVersion, strings.Join(s.APIVersions, ", "), s.API)
	}
	return nil
}
