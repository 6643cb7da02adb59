import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import java.util.Scanner;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after the other, which is much faster than to start Java for each: a line names
 * the tool and its arguments, with tabs in between; what it printed follows, and a line with a zero byte and its status.
 */
public class Tools {
    private static class Ended extends RuntimeException {
        private final int status;

        Ended(int status) {
            this.status = status;
        }
    }

    /** The first one counts: some tools catch whatever is thrown, what ends them as well, and end once more. */
    private static Ended ended;

    private static int run(String[] words) throws Throwable {
        String[] arguments = Arrays.copyOfRange(words, 1, words.length);
        ended = null;
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (ended == null) throw error.getCause();
        }
        return ended == null ? 0 : ended.status;
    }

    public static void main(String[] arguments) {
        PrintStream answers = System.out;
        Exit.setExitProcedure((status, message) -> {
            Ended last = new Ended(status);
            if (ended == null) ended = last;
            throw last;
        });
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream capture = new PrintStream(said, true);
            System.setOut(capture);
            System.setErr(capture);
            int status = 1;
            try {
                status = run(lines.nextLine().split("\t"));
            } catch (Throwable error) {
                error.printStackTrace(capture);
            }
            answers.print(said);
            answers.println("\0" + status);
            answers.flush();
        }
        System.exit(0);
    }
}
