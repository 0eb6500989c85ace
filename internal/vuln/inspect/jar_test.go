package inspect_test

import (
	"archive/zip"
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// jarOf returns an archive with these files: name, content, name, content and so on.
func jarOf(files ...string) string {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		w, err := z.Create(files[i])
		must(err)
		_, err = w.Write([]byte(files[i+1]))
		must(err)
	}
	must(z.Close())
	return b.String()
}

// manifest returns an archive whose manifest has these lines. The published archives have the same lines.
func manifest(lines ...string) string {
	return jarOf("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\r\n"+strings.Join(lines, "\r\n")+"\r\n\r\n")
}

func pom(group, artifact, version string) []string {
	return []string{"META-INF/maven/" + group + "/" + artifact + "/pom.properties",
		"groupId=" + group + "\nartifactId=" + artifact + "\nversion=" + version + "\n"}
}

// TestJars checks the identity of Java archives.
func TestJars(t *testing.T) {
	springBeans := manifest("Implementation-Title: spring-beans", "Automatic-Module-Name: spring.beans",
		"Implementation-Version: 5.3.17", "Created-By: 1.8.0_322 (Oracle Corporation)")
	log4j := manifest("Bundle-SymbolicName: org.apache.logging.log4j.core", "Implementation-Title: Apache Log4j Core",
		"Implementation-Vendor: The Apache Software Foundation", "Implementation-Version: 2.14.1")
	tests := map[string]struct {
		name, content string
		want          []string
	}{
		"Spring": {"spring-beans-5.3.17.jar", springBeans, []string{"Maven org.springframework:spring-beans 5.3.17"}},
		"Log4j":  {"log4j-core-2.14.1.jar", log4j, []string{"Maven org.apache.logging.log4j:log4j-core 2.14.1"}},
		"a vendor": {"thing-tool-1.0.jar", manifest("Implementation-Vendor-Id: com.acme.thing"),
			[]string{"jar thing-tool 1.0 pkg:jar/thing-tool@1.0?vendor=com.acme.thing"}},
		"Tomcat": {"tomcat-embed-core-9.0.50.jar", manifest("Bundle-SymbolicName: org.apache.tomcat-embed-core",
			"Implementation-Title: Apache Tomcat", "Implementation-Version: 9.0.50"),
			[]string{"Maven org.apache.tomcat.embed:tomcat-embed-core 9.0.50"}},
		"okio": {"okio-1.15.0.jar", manifest("Automatic-Module-Name: okio"),
			[]string{"Maven com.squareup.okio:okio 1.15.0"}},
		"Kotlin": {"kotlin-stdlib-1.4.0.jar", manifest("Implementation-Vendor: JetBrains",
			"Implementation-Title: kotlin-stdlib", "Implementation-Version: 1.4.0-release-329 (1.4.0)"),
			[]string{"Maven org.jetbrains.kotlin:kotlin-stdlib 1.4.0"}},
		"a bundle with a parameter, on two lines": {"commons-lang3-3.9.jar",
			manifest("Bundle-SymbolicName: org.apache.commons.la", " ng3;singleton:=true"),
			[]string{"Maven org.apache.commons:commons-lang3 3.9"}},
		"a bundle that fits two groups": {"gson-2.8.jar", manifest("Bundle-SymbolicName: com.google.gson"),
			[]string{"jar gson 2.8 pkg:jar/gson@2.8?bundle=com.google.gson"}},
		"a bundle of Maven": {"jackson-databind-2.9.8.jar",
			manifest("Bundle-SymbolicName: com.fasterxml.jackson.core.jackson-databind"),
			[]string{"Maven com.fasterxml.jackson.core:jackson-databind 2.9.8"}},
		"an unknown group": {"thing-1.0.jar", manifest(), []string{"jar thing 1.0 pkg:jar/thing@1.0"}},
		"Scala":            {"thing_2.13-1.0.jar", manifest(), []string{"jar thing_2.13 1.0 pkg:jar/thing_2.13@1.0"}},
		"no identity":      {"app.jar", manifest("Main-Class: app.Main"), nil},
		"its title":        {"app.jar", springBeans, []string{"Maven org.springframework:spring-beans 5.3.17"}},
		"renamed":          {"x-9.jar", jarOf(pom("g.h", "a", "1")...), []string{"Maven g.h:a 1"}},
		"an archive in a war": {"shop.war", jarOf("WEB-INF/lib/spring-beans-5.3.17.jar", springBeans),
			[]string{"Maven org.springframework:spring-beans 5.3.17"}},
		"a war in an ear": {"shop.ear", jarOf("shop.war", jarOf("WEB-INF/lib/log4j-core-2.14.1.jar", log4j)),
			[]string{"Maven org.apache.logging.log4j:log4j-core 2.14.1"}},
		"Spring Boot": {"app-1.jar", jarOf("BOOT-INF/lib/spring-beans-5.3.17.jar", springBeans),
			[]string{"Maven org.springframework:spring-beans 5.3.17", "jar app 1 pkg:jar/app@1"}},
		"shaded": {"all-1.0.jar", jarOf(append(pom("org.a", "one", "1.1"), pom("org.b", "two", "2.2")...)...),
			[]string{"Maven org.a:one 1.1", "Maven org.b:two 2.2", "jar all 1.0 pkg:jar/all@1.0"}},
		"a model": {"x-1.jar", jarOf("META-INF/maven/org.a/x/pom.xml",
			"<project><parent><groupId>org.a</groupId><version>1</version></parent><artifactId>x</artifactId></project>"),
			[]string{"Maven org.a:x 1"}},
		"a model with variables": {"x-1.jar", jarOf("META-INF/maven/org.a/x/pom.xml",
			"<project><version>${revision}</version></project>"),
			[]string{"jar x 1 pkg:jar/x@1"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := inspected(t, zipped(archive(file{name: "app/" + tt.name, content: tt.content})))
			var got []string
			for _, p := range r.Packages {
				line := p.Ecosystem + " " + p.Name + " " + p.Version
				if p.Ecosystem == "jar" {
					line += " " + p.Purl
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || len(r.Warnings) > 0 {
				t.Errorf("(-want +got):\n%s\nwarnings: %q", diff, r.Warnings)
			}
		})
	}
}
