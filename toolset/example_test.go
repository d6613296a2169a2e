package toolset_test

import (
	"context"
	"fmt"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/toolset"
)

func ExampleToolset_Execute() {
	tools, err := toolset.New(newDesk(1280, 800), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	opts := &toolset.ExecuteOptions{Policy: toolset.Ask(approve.AllowActions)}
	harmless := call(`{"type":"click","x":640,"y":400,"button":"left"}`)
	output, err := tools.Execute(context.Background(), harmless, opts)
	fmt.Printf("%.60s… %v\n", output, err)

	suspect := call(`{"type":"wait"}`, `,"pending_safety_checks":[{"id":"sc_1","code":"malicious_instructions"}]`)
	_, err = tools.Execute(context.Background(), suspect, opts)
	fmt.Println(err)
	// Output:
	// {"call_id":"call_1","output":{"image_url":"data:image/png;ba… <nil>
	// computer call "call_1": approval of the safety checks: not approved
}
