package kubernetes

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/iam"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

//go:embed templates/*.tmpl
var files embed.FS

// nodes are the kinds of nodes that setup knows: the folders in which each kind expects the provider and its
// configuration.
var nodes = map[string]struct{ Binaries, Config string }{
	"kubeadm": {"/usr/local/lib/kubelet", "/etc/kubernetes/credential-providers.yaml"},
	"k3s":     {"/var/lib/rancher/credentialprovider/bin", "/var/lib/rancher/credentialprovider/config.yaml"},
	"rke2":    {"/var/lib/rancher/credentialprovider/bin", "/var/lib/rancher/credentialprovider/config.yaml"},
	"talos":   {"/usr/local/lib/kubelet/credentialproviders", "machine configuration"},
	"eks":     {"/etc/eks/image-credential-provider", "/etc/eks/image-credential-provider/config.json"},
	"gke":     {},
}

// parts are the parts of the configuration, in the order in which a person needs them.
var parts = []string{"provider", "nodes", "rbac", "service-account"}

// A cluster is what the templates show.
type cluster struct {
	Nodes            string // kind of the nodes
	Binaries, Config string // folder of the provider, and file with its configuration
	Server, Registry string // address of the registry, and host in the names of images
	Audience         string // audience of the tokens of service accounts
	Namespace        string
	ServiceAccount   string
	Identity         string // UID for the annotation of the service account; may be ""
}

// Quote returns a text as a string in YAML.
func (cluster) Quote(text string) (string, error) {
	quoted, err := json.Marshal(text) // a string in JSON is a string in YAML
	return string(quoted), err
}

func setup(a *noun.App) *cobra.Command {
	c, only, account := cluster{}, "", ""
	cmd := &cobra.Command{
		Use: "setup", Short: "Print the configuration with which the pods of a cluster pull with their own identity",
		Long: "Prints the configuration of the credential provider, what to do on the nodes, the permission with which\n" +
			"nodes request tokens, and the annotation of a service account. Nothing is changed. --only prints one part,\n" +
			"which kubectl apply -f - accepts.",
		Example: "  holdfast kubernetes setup --nodes k3s\n" +
			"  holdfast kubernetes setup --only rbac | kubectl apply -f -\n" +
			"  holdfast kubernetes setup --only service-account --service-account shop/web --identity acme/shop/web",
		Args: cobra.NoArgs,
		RunE: a.Do(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			if err := c.complete(ctx, a, account); err != nil {
				return err
			}
			return c.print(a, only)
		}),
	}
	f := cmd.Flags()
	kinds := slices.Sorted(maps.Keys(nodes))
	f.StringVar(&c.Nodes, "nodes", "kubeadm", "`KIND` of the nodes: "+strings.Join(kinds, ", "))
	f.StringVar(&only, "only", "", "print only one `PART`: "+strings.Join(parts, ", "))
	f.StringVar(&c.Registry, "registry", "", "`HOST` in the names of images; by default the registry of the settings")
	f.StringVar(&c.Audience, "audience", "", "`AUDIENCE` of the tokens; by default the address of the token service")
	f.StringVar(&account, "service-account", "default/default", "`NAMESPACE/NAME` of the service account to annotate")
	f.StringVar(&c.Identity, "identity", "", "`IDENTITY` that pods of the service account use, if several would match")
	noun.CompleteWords(cmd, "nodes", kinds)
	noun.CompleteWords(cmd, "only", parts)
	return cmd
}

// complete sets what the flags leave open.
func (c *cluster) complete(ctx context.Context, a *noun.App, account string) (err error) {
	kind, known := nodes[c.Nodes]
	if !known {
		return problem.Usage("--nodes: %q is not one of %s", c.Nodes, strings.Join(slices.Sorted(maps.Keys(nodes)), ", "))
	}
	c.Binaries, c.Config = kind.Binaries, kind.Config
	var found bool
	if c.Namespace, c.ServiceAccount, found = strings.Cut(account, "/"); !found || c.Namespace == "" ||
		c.ServiceAccount == "" || strings.Contains(c.ServiceAccount, "/") {
		return problem.Usage("--service-account: %q is not NAMESPACE/NAME", account)
	}
	if c.Registry == "" {
		if c.Registry, err = a.RegistryAddress(); err != nil {
			return err
		}
	}
	issuer, err := a.Issuer()
	if err != nil {
		return err
	}
	scheme, _, _ := strings.Cut(issuer, "://")
	c.Server = scheme + "://" + c.Registry
	if c.Audience == "" {
		c.Audience = issuer
	}
	if c.Identity != "" {
		c.Identity, err = a.Resolve(ctx, iam.Identities(), c.Identity)
	}
	return err
}

// print prints one part of the configuration, or all of them.
func (c *cluster) print(a *noun.App, only string) error {
	if only != "" && !slices.Contains(parts, only) {
		return problem.Usage("--only: %q is not one of %s", only, strings.Join(parts, ", "))
	}
	templates, err := template.ParseFS(files, "templates/*.tmpl")
	if err != nil {
		return err
	}
	for i, part := range parts {
		if only != "" && only != part {
			continue
		}
		if only == "" && i > 0 {
			fmt.Fprintln(a.Out, "---")
		}
		if err := templates.ExecuteTemplate(a.Out, part+".tmpl", c); err != nil {
			return err
		}
	}
	return nil
}
