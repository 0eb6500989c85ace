package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-dev/holdfast/client"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	oidcpb "github.com/holdfast-dev/holdfast/gen/oidc"
)

func Example() {
	ctx := context.Background()
	c, err := client.Dial(client.Config{
		Address:    os.Getenv("HOLDFAST_API"),
		UserAgent:  "team-sync/1.0",
		Credential: client.Token(os.Getenv("HOLDFAST_TOKEN")),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	groups := iampb.NewGroupsServiceClient(c)
	team, err := groups.CreateGroup(ctx, &iampb.CreateGroupRequest{
		Parent: os.Getenv("HOLDFAST_ORGANIZATION"),
		Group:  &iampb.Group{Name: "team-a", Description: "made by a program"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(team.GetName(), "is", team.GetDescription())
	// Output: team-a is made by a program
}

// A workload needs no secret: it sends the token that its platform gives it. In a
// pipeline or a pod the Proof can be omitted.
func ExampleWorkload() {
	c, err := client.Dial(client.Config{
		Address: os.Getenv("HOLDFAST_API"),
		Credential: client.Workload{
			Identity: os.Getenv("HOLDFAST_IDENTITY"),
			Proof:    client.File(os.Getenv("HOLDFAST_IDENTITY_TOKEN_FILE")),
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	token, err := c.Token(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	claims, _ := client.ReadClaims(token)
	fmt.Println("acts as the identity:", claims.Subject == os.Getenv("HOLDFAST_IDENTITY"))
	fmt.Println("proven to be:", claims.Actor.Subject)
	// Output:
	// acts as the identity: true
	// proven to be: batch
}

func ExampleRefreshToken() {
	c, err := client.Dial(client.Config{
		Address:    os.Getenv("HOLDFAST_API"),
		Credential: client.RefreshToken(os.Getenv("HOLDFAST_REFRESH_TOKEN")), // good once: keep the next in a Vault
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	_, err = iampb.NewGroupsServiceClient(c).ListGroups(context.Background(), &iampb.ListGroupsRequest{})
	fmt.Println(err)
	// Output: <nil>
}

func ExampleAll() {
	ctx := context.Background()
	c, err := client.Dial(client.Config{
		Address: os.Getenv("HOLDFAST_API"), Credential: client.Token(os.Getenv("HOLDFAST_TOKEN")),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	roles := iampb.NewRolesServiceClient(c)
	request := &iampb.ListRolesRequest{OrderBy: "name", PageSize: 2}
	for role, err := range client.All(ctx, roles.ListRoles, request, (*iampb.ListRolesResponse).GetRoles) {
		if err != nil {
			log.Fatal(err)
		}
		if strings.HasPrefix(role.GetName(), "registry.p") {
			fmt.Println(role.GetName())
		}
	}
	// Output:
	// registry.pull
	// registry.pull_token_creator
	// registry.push
}

// An interrupted iteration continues from the last page that was processed.
func ExamplePages() {
	ctx := context.Background()
	c, err := client.Dial(client.Config{
		Address: os.Getenv("HOLDFAST_API"), Credential: client.Token(os.Getenv("HOLDFAST_TOKEN")),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	roles := iampb.NewRolesServiceClient(c)
	request := &iampb.ListRolesRequest{PageSize: 5}
	seen, total, runs := 0, 0, 0
	for done := false; !done; runs++ {
		for page, err := range client.Pages(ctx, roles.ListRoles, request) {
			if err != nil {
				log.Fatal(err)
			}
			seen += len(page.GetRoles())
			total = int(page.GetTotalCount())
			request.PageToken = page.GetNextPageToken() // remember this
			done = request.PageToken == ""
			break // something cuts it off
		}
	}
	fmt.Println("all of them:", seen == total, "in more than one run:", runs > 1)
	// Output: all of them: true in more than one run: true
}

func ExampleError() {
	ctx := context.Background()
	c, err := client.Dial(client.Config{
		Address: os.Getenv("HOLDFAST_API"), Credential: client.Token(os.Getenv("HOLDFAST_TOKEN")),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	_, err = iampb.NewGroupsServiceClient(c).CreateGroup(ctx, &iampb.CreateGroupRequest{
		Parent: os.Getenv("HOLDFAST_ORGANIZATION"),
		Group:  &iampb.Group{Name: "Not Lower Case"},
	})
	fmt.Println(status.Code(err) == codes.InvalidArgument)
	if e, ok := errors.AsType[*client.Error](err); ok {
		fmt.Println(e.Reason())
		for _, v := range e.Fields() {
			fmt.Println(v.GetField()+":", v.GetDescription())
		}
		fmt.Println("in the server's log:", e.RequestID != "")
	}
	// Output:
	// true
	// INVALID_ARGUMENT
	// name: name must match the pattern ^[a-z0-9 ._-]{1,}$
	// in the server's log: true
}

// The registry needs its own tokens. An API token can be exchanged for a registry token.
func ExampleIssuer_Exchange() {
	ctx := context.Background()
	c, err := client.Dial(client.Config{
		Address: os.Getenv("HOLDFAST_API"), Credential: client.Token(os.Getenv("HOLDFAST_TOKEN")),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	registry, err := ocipb.NewOCIServiceClient(c).GetRegistry(ctx, &ocipb.GetRegistryRequest{})
	if err != nil {
		log.Fatal(err)
	}
	own, err := c.Token(ctx)
	if err != nil {
		log.Fatal(err)
	}
	tokens, err := c.Issuer().Exchange(ctx, own, &oidcpb.ExchangeRequest{Aud: []string{registry.GetHost()}})
	if err != nil {
		log.Fatal(err)
	}
	claims, _ := client.ReadClaims(tokens.Access)
	fmt.Println(claims.Audience[0] == registry.GetHost())
	// Output: true
}
